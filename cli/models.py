"""`trimtab models`: what a node's decider has learned and stored, and orders to go on from another model."""

import argparse
import asyncio
import secrets
import sys
import time
from datetime import UTC, datetime
from typing import Any, Final

import msgspec

from cli.model_desk import ModelDesk, StoredModel, model_desk, newest_first
from cli.order_view import printable, show_dry, show_rows
from cli.orders import default_by, node_of, wait_seconds
from cli.tail import add_bus_flags, as_operator, bus_settings
from runtime.config import load
from runtime.errors import ConfigError
from schemas.codec import EncodeError, encode
from schemas.messages import Command
from services.decider.config import DeciderConfig
from services.decider.core.fit import require_fit
from services.decider.core.model import Model
from services.decider.core.snapshot import SnapshotMismatch
from services.decider.core.words import short

_LONGEST_TEXT: Final = 300
_COLUMNS: Final = ("digest", "made_at", "why", "champion", "lessons", "updates", "parent", "fits")


def add_flags(parser: argparse.ArgumentParser) -> None:
    """The verb's flags."""
    doing = parser.add_subparsers(dest="doing", required=True, metavar="DOING")
    listing = doing.add_parser("list", help="what is stored, the newest first")
    listing.add_argument("--last", type=_count, default=20, metavar="N", help="at most so many (default: 20)")
    showing = doing.add_parser("show", help="one model: where it came from and what is in it")
    showing.add_argument("digest", help="its digest, or how that begins")
    promoting = doing.add_parser("promote", help="go on from a stored model, or put a shadow in charge")
    promoting.add_argument("model", help="a digest, or how that begins, or the name of a policy")
    rolling = doing.add_parser("rollback", help="go on from what was in force before the last order")
    for each in (listing, showing, promoting, rolling):
        add_bus_flags(each)
        each.add_argument("--node", help="the node (default: the configured one)")
        each.add_argument("-o", "--output", choices=["table", "json", "jsonl"], default="table")
    for each in (promoting, rolling):
        each.add_argument("--reason", required=True, metavar="TEXT", help="why, for the audit")
        each.add_argument(
            "--by", default=default_by(), metavar="WHO", help="who gives the order (default: %(default)s)"
        )
        each.add_argument("--dry-run", action="store_true", help="show the message and its subject, send nothing")
        each.add_argument(
            "--wait",
            type=wait_seconds,
            default=15.0,
            metavar="SECONDS",
            help="how long to wait for the action that tells of it (default: 15, three ticks)",
        )
    parser.set_defaults(run=run)


def _count(text: str) -> int:
    if not text.isdecimal() or not 1 <= int(text) <= 10_000:  # noqa: PLR2004 - decider.models_kept is no more
        raise argparse.ArgumentTypeError(f"{text!r} is no number of models from 1 to 10000")
    return int(text)


def run(args: argparse.Namespace) -> int:
    """Shows, or orders (1 if the order is not seen obeyed)."""
    if args.doing in ("promote", "rollback"):
        _order("checked", "checked-before-anything-is-sent", args)
    return asyncio.run(_run(args))


async def _run(args: argparse.Namespace) -> int:
    node = node_of(args)
    async with model_desk(as_operator(bus_settings(args)), node) as desk:
        if args.doing == "list":
            return await _list(desk, args)
        if args.doing == "show":
            return await _show(desk, args)
        word = await (desk.word_for(args.model) if args.doing == "promote" else desk.before_last_order())
        order = _order(word, node, args)
        if args.dry_run:
            show_dry([order], args.output)
            return 0
        outcome, detail = await desk.give(order, args.wait)
    row = {"node": node, "verb": "model", "model": short(word), "outcome": outcome}
    full = {**row, "model": word, "by": order.by, "reason": order.reason, "id": order.id, "detail": detail}
    show_rows([row if args.output == "table" else full], args.output, ("node", "verb", "model", "outcome"))
    if detail is not None:
        print(f"trimtab models: {printable(f'{node}: {detail}')}", file=sys.stderr)
    return 0 if outcome == "in_force" else 1


async def _list(desk: ModelDesk, args: argparse.Namespace) -> int:
    fits = _Fits(args, desk.node)
    rows = [_row(await desk.fetch(digest), fits) for digest in newest_first(await desk.digests(), args.last)]
    if args.output == "table":
        rows = [
            {**row, "digest": short(row["digest"]), "parent": row["parent"] and short(row["parent"])} for row in rows
        ]
    show_rows(rows, args.output, _COLUMNS)
    return 0


def _row(stored: StoredModel, fits: "_Fits") -> dict[str, Any]:
    model = stored.model
    if model is None:
        unknown: dict[str, Any] = dict.fromkeys(_COLUMNS)
        return {**unknown, "digest": stored.digest, "fits": f"no: {stored.error}"}
    champion = model.mind.policies.get(model.mind.champion)
    return {
        "digest": stored.digest,
        "made_at": datetime.fromtimestamp(model.made_at / 1e9, UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "why": model.why,
        "champion": model.mind.champion,
        "lessons": model.lessons,
        "updates": champion.updates if champion is not None else None,
        "parent": model.parent,
        "fits": fits.why_not(model) or "yes",
        "run": model.run,
        "order": model.order,
        "replaced": model.replaced,
        "trimtab": model.trimtab,
    }


async def _show(desk: ModelDesk, args: argparse.Namespace) -> int:
    digest = await desk.word_for(args.digest)
    stored = await (desk.fetch(digest) if digest in await desk.digests() else desk.newest())
    row = _row(stored, _Fits(args, desk.node))
    if stored.model is not None:
        row |= _provenance(stored.model)
    if args.output != "table":
        show_rows([row], args.output, ())
        return 0
    policies = row.pop("policies", [])
    show_rows([{"field": name, "value": value} for name, value in row.items()], "table", ("field", "value"))
    if policies:
        print()
        show_rows(policies, "table", ("name", "policy", "updates", "arms", "numbers", "river"))
    return 0


def _provenance(model: Model) -> dict[str, Any]:
    """Where a model came from, and what it is made of without the numbers."""
    mind = model.mind
    trial = mind.trial
    return {
        "node": model.node,
        "version": model.version,
        "python": model.python,
        "river": model.river,
        "prior": model.prior,
        "settings": model.settings,
        "features_schema": model.features_schema,
        "last_lesson": mind.last_lesson,
        "bytes": len(msgspec.json.encode(model)),
        "trial": f"{trial.challenger} against {trial.incumbent}: {trial.phase}, {trial.pairs} pairs" if trial else None,
        "policies": [
            {
                "name": name,
                "policy": saved.identity.policy,
                "updates": saved.updates,
                "arms": len(saved.identity.arms),
                "numbers": sum(len(values) for values in saved.numbers.values()),
                "river": saved.identity.river or None,
            }
            for name, saved in mind.policies.items()
        ],
    }


class _Fits:
    """Whether the decider of this configuration could go on from a model."""

    def __init__(self, args: argparse.Namespace, node: str) -> None:
        config = load({"decider": DeciderConfig}, path=args.config)
        self._config = config.section("decider", DeciderConfig)
        self._shared = msgspec.structs.replace(config.shared, node=node)

    def why_not(self, model: Model) -> str | None:
        """Why it could not, None if it could."""
        try:
            require_fit(model, self._config, self._shared)
        except SnapshotMismatch as error:
            return f"no: {error}"
        except ModuleNotFoundError as error:
            return f"unknown: the package {error.name} is not here"
        return None


def _order(word: str, node: str, args: argparse.Namespace) -> Command:
    """The order. Raises ConfigError for texts that cannot be sent."""
    for flag, text in (("--by", args.by), ("--reason", args.reason)):
        if not text.strip() or len(text) > _LONGEST_TEXT:
            raise ConfigError(f"flag {flag}: takes 1 to {_LONGEST_TEXT} letters: it is kept in the audit")
    made = Command(
        node=node,
        boot="operator",
        cycle=0,
        at=time.time_ns(),
        verb="model",
        by=args.by,
        reason=args.reason,
        id=secrets.token_hex(8),
        model=word,
    )
    try:
        encode(made)
    except EncodeError as error:
        raise ConfigError(f"flags --by, --reason: not to be sent as text ({error}); write them in UTF-8") from error
    return made
