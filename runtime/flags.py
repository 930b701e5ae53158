"""Command-line flags: a parser whose errors are one line and an exception, and the flags that every process has."""

import argparse
import os
from typing import NoReturn

from runtime.errors import ConfigError
from runtime.yaml_text import one_line


class FlagParser(argparse.ArgumentParser):
    """argparse without its page of usage before every error, and without guessing at abbreviated flags."""

    def __init__(self, prog: str, description: str | None = None, **kwargs: object) -> None:
        super().__init__(prog=prog, description=description, allow_abbrev=False, **kwargs)  # type: ignore[arg-type]

    def error(self, message: str) -> NoReturn:
        """Raises ConfigError with the parser's words and where to read on."""
        text = message.replace("argument ", "flag ", 1) if message.startswith("argument ") else message
        raise ConfigError(one_line(f"{text}; see {self.prog} --help"))


def add_config_flags(parser: argparse.ArgumentParser) -> None:
    """The flags that every process understands."""
    parser.add_argument("--config", metavar="FILE", default=os.environ.get("TRIMTAB_CONFIG"), help="YAML configuration")
    parser.add_argument("--node", help="name of this node")
    parser.add_argument("--mode", choices=["shadow", "canary", "active", "frozen"], help="mode to start in")
    parser.add_argument("--nats-url", metavar="URL", help="NATS server")
    parser.add_argument("--log-level", choices=["debug", "info", "warning", "error"], help="least severity logged")
    parser.add_argument(
        "--set", action="append", default=[], metavar="PATH=VALUE", help="any setting, like loop.tick_seconds=10"
    )
    parser.add_argument("--print-config", action="store_true", help="show every value and where it came from, and exit")


def assignments(texts: list[str]) -> list[tuple[str, object, str]]:
    """What `--set PATH=VALUE` flags set: (path, value, flag). Raises ConfigError for what is no assignment."""
    found: list[tuple[str, object, str]] = []
    for text in texts:
        path, sign, value = text.partition("=")
        if not sign or not path:
            raise ConfigError(one_line(f"flag --set {text}: write --set section.field=value"))
        found.append((path, value, "--set"))
    return found


def overrides_of(args: argparse.Namespace) -> list[tuple[str, object, str]]:
    """The settings that the common flags set: (path, value, flag). Raises ConfigError."""
    named = {
        "node": (args.node, "--node"),
        "mode": (args.mode, "--mode"),
        "bus.url": (args.nats_url, "--nats-url"),
        "log.level": (args.log_level, "--log-level"),
    }
    return assignments(args.set) + [(path, value, flag) for path, (value, flag) in named.items() if value is not None]
