"""The report card, for a terminal and as a page."""

from collections.abc import Sequence
from html import escape

from kenari.conformance.play import Gateway, Result
from kenari.conformance.scenario import FORMATS, Scenario


def score(results: Sequence[Result]) -> tuple[int, int]:
    """How many were passed, of how many that were played."""
    played = [result for result in results if not result.skipped]
    return sum(not result.faults for result in played), len(played)


def terminal(gateway: Gateway, results: Sequence[Result]) -> str:
    """The card as text: a line for each scenario, then what was wrong."""
    wide = max(len(result.scenario.title) for result in results)
    lines = [f"{gateway.url}, model {gateway.model}", ""]
    lines.append(" " * wide + "  " + "  ".join(f"{form:<9}" for form in FORMATS).rstrip())
    for scenario, row in _rows(results):
        lines.append(f"{scenario.title:<{wide}}  " + "  ".join(f"{_mark(one):<9}" for one in row).rstrip())
    faults = [
        f"{result.scenario.id}, {result.form}, {fault}"
        for result in results
        if not result.skipped
        for fault in result.faults
    ]
    if faults:
        lines += ["", "What was wrong:", *(f"  {fault}" for fault in faults)]
    passed, played = score(results)
    lines += ["", f"{passed} of {played} passed ({_percent(passed, played)})"]
    return "\n".join(lines) + "\n"


def page(gateway: Gateway, results: Sequence[Result], date: str) -> str:
    """The card as an HTML page of its own. `date` is a day in words."""
    passed, played = score(results)
    head = "".join(f"<th scope=col>{form}</th>" for form in FORMATS)
    body = "".join(
        f"<tr><th scope=row>{escape(scenario.title)}</th>{''.join(_cell(one) for one in row)}</tr>"
        for scenario, row in _rows(results)
    )
    return (
        "<!doctype html><html lang=en><meta charset=utf-8><meta name=viewport content='width=device-width'>"
        f"<title>Conformance of {escape(gateway.url)}</title><style>{_STYLE}</style>"
        f"<h1>{_percent(passed, played)}</h1><p>{passed} of {played} passed by {escape(gateway.url)} with the model "
        f"{escape(gateway.model)} on {escape(date)}.</p>"
        f"<table><thead><tr><td></td>{head}</tr></thead><tbody>{body}</tbody></table></html>\n"
    )


def _rows(results: Sequence[Result]) -> list[tuple[Scenario, list[Result]]]:
    rows: dict[str, list[Result]] = {}
    for result in results:
        rows.setdefault(result.scenario.id, []).append(result)
    return [(row[0].scenario, row) for row in rows.values()]


def _mark(result: Result) -> str:
    return "-" if result.skipped else "FAILED" if result.faults else "ok"


def _cell(result: Result) -> str:
    if result.skipped:
        return f"<td class=skipped>{escape(result.skipped)}</td>"
    if not result.faults:
        return "<td class=ok>ok</td>"
    return "<td class=failed>" + "<br>".join(escape(fault) for fault in result.faults) + "</td>"


def _percent(passed: int, played: int) -> str:
    return f"{100 * passed // played if played else 0} %"


_STYLE = (
    "body{font:16px/1.5 system-ui,sans-serif;max-width:70rem;margin:2rem auto;padding:0 1rem;color:#1b1b1b;background:#fff}"
    "h1{font-size:3rem;margin:0}table{border-collapse:collapse;width:100%}"
    "th,td{border-bottom:1px solid #ddd;padding:.4rem .6rem;text-align:left;vertical-align:top}"
    ".ok{color:#0a6b2d}.failed{color:#a4161a}.skipped{color:#666}"
    "@media (prefers-color-scheme:dark){body{background:#161616;color:#eee}th,td{border-color:#444}"
    ".ok{color:#6fd08c}.failed{color:#ff8f8f}.skipped{color:#aaa}}"
)
