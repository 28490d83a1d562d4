"""`kenari models` and `kenari routes explain`: what is configured, without a running server."""

import argparse
import random
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from kenari.catalog.listing import list_body
from kenari.catalog.models import Catalog, Entry, Price
from kenari.commands.base import add_command, add_group
from kenari.commands.importing import import_models
from kenari.config import Config
from kenari.core.errors import KenariError
from kenari.core.ids import Envelopes
from kenari.gateway.explain import explain
from kenari.gateway.pins import MemoryPins
from kenari.gateway.plan import make_plan
from kenari.gateway.routing import Routing

if TYPE_CHECKING:
    from kenari.commands.base import Commands

_COLUMNS = ("MODEL", "KIND", "WINDOW", "CAP", "INPUT", "OUTPUT", "READ", "WRITE", "BESIDE", "ACCESS", "SERVED BY")


def add(commands: "Commands") -> None:
    """The commands and their options."""
    words = add_command(commands, "models", "print the models and routes of the configuration", models)
    words.add_argument("--json", action="store_true", help="as GET /v1/models shows them")
    more = words.add_subparsers(dest="models_command", metavar="COMMAND")
    words = add_command(more, "import", "take windows, caps and prices from a data package", import_models)
    words.add_argument("models", nargs="*", metavar="MODEL", help="default: every model of the configuration")
    words.add_argument("--write", action="store_true", help="write what is shown; the file before stays as a .bak")
    group = add_group(commands, "routes", "what becomes of a request for a model or a route")
    words = add_command(group, "explain", "print which targets would be tried, in what order, and why", explain_route)
    words.add_argument("model", metavar="MODEL", help="a model's id, an alias, or a route's name")


def models(options: argparse.Namespace, config: Config) -> int:
    """A table with prices per million tokens."""
    catalog = Catalog(config.models, config.routes)
    if options.json:
        print(list_body(catalog, False, lambda _: True).decode())
        return 0
    sys.stdout.write(table([_COLUMNS, *(_row(entry) for entry in catalog.entries)]))
    return 0


def explain_route(options: argparse.Namespace, config: Config) -> int:
    """The order of a process that has just started: nothing is known of anybody's health."""
    catalog = Catalog(config.models, config.routes)
    try:
        entry = catalog.entry(options.model)
    except KenariError as error:
        print(error.message.partition(". see")[0] + ". see kenari models", file=sys.stderr)
        return 1
    plan = make_plan(entry, config.providers, Envelopes(b""))
    routing = Routing(_start, MemoryPins(_start), b"", random.Random())
    rows = [("", "CANDIDATE", "MODEL", "WEIGHT", "WHY")]
    for place, step in enumerate(explain(plan, routing, 0.0), 1):
        rows.append((f"{place}.", step.candidate, step.model, str(step.weight), step.why))
    print(f"{entry.id}: policy {entry.policy}, {len(plan.candidates)} candidates")
    sys.stdout.write(table(rows))
    return 0


def table(rows: Sequence[Sequence[str]]) -> str:
    """Rows in columns as wide as their widest cell."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
    return "\n".join(lines) + "\n"


def _row(entry: Entry) -> tuple[str, ...]:
    model, price = entry.model, entry.model.price
    prices = (price.input, price.output, price.cache_read, price.cache_write) if price else (None,) * 4
    route = len(entry.members) != 1 or entry.members[0].model.id != entry.id
    served = [f"{one.model.id}@{one.weight}" if one.weight > 1 else one.model.id for one in entry.members]
    targets = [target.id for target in model.targets]
    return (
        model.id,
        "route" if route else model.kind,
        "?" if model.context_window is None else str(model.context_window),
        str(model.max_output_tokens),
        *("-" if one is None else one for one in prices),
        _beside(price),
        model.access,
        f"{entry.policy}: {', '.join(served)}" if route else ", ".join(targets),
    )


def _beside(price: Price | None) -> str:
    """What is paid beside tokens: for an image, a million characters, a second."""
    if price is None:
        return "-"
    units = (("an image", price.image), ("1M characters", price.character), ("a second", price.second))
    return ", ".join(f"{amount} {unit}" for unit, amount in units if amount is not None) or "-"


def _start() -> float:
    return 0.0
