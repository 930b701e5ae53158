"""`trimtab <verb>`: the list of verbs, and how errors end.

Exit codes: 0 good, 1 an error or a failed check, 2 wrong settings or flags, 3 no bus, 4 no server, 5 port in use,
6 this machine cannot, 130 interrupted.
"""

import sys
from collections.abc import Sequence

from cli import demo, doctor, tail, up
from runtime.errors import TrimtabError
from runtime.flags import FlagParser
from runtime.metrics import product_version

VERBS = (demo, up, tail, doctor)


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one verb; the exit code."""
    parser = FlagParser(
        prog="trimtab", description="Learns cpu.weight online: latency-critical pods first, batch with what is left."
    )
    parser.add_argument("--version", action="version", version=f"trimtab {product_version()}")
    verbs = parser.add_subparsers(dest="verb", required=True, metavar="VERB")
    for module in VERBS:
        module.add_parser(verbs)
    verb = ""
    try:
        args = parser.parse_args(argv)
        verb = f" {args.verb}"
        code: int = args.run(args)
    except TrimtabError as error:
        print(f"trimtab{verb}: {error}", file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        return 0
    return code


if __name__ == "__main__":
    sys.exit(main())
