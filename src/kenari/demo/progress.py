"""How far a download is: one moving line on a terminal, a few plain lines elsewhere."""

from collections.abc import Callable
from typing import TextIO

_BAR = 24
_PLAIN_STEPS = 4


def bar(label: str, done: int, total: int) -> str:
    """`fetching the model [######........] 48.2 of 92.9 MB`."""
    share = min(done / total, 1.0) if total > 0 else 0.0
    full = int(share * _BAR)
    return f"{label} [{'#' * full}{'.' * (_BAR - full)}] {done / 1e6:.1f} of {total / 1e6:.1f} MB"


class Progress:
    """Shows steps of one download after another. `terminal` is where the moving line goes, None when there is none;
    `report` takes the plain lines."""

    def __init__(self, report: Callable[[str], None], terminal: TextIO | None) -> None:
        self._report = report
        self._terminal = terminal
        self._label = ""
        self._shown = -1
        self._width = 0

    def step(self, label: str, done: int, total: int) -> None:
        """So many bytes of `total` have come."""
        if label != self._label:
            self.close()
            self._label = label
        if self._terminal is not None:
            line = bar(label, done, total)
            self._terminal.write("\r" + line.ljust(self._width))
            self._terminal.flush()
            self._width = len(line)
            return
        quarter = _PLAIN_STEPS * done // total if total > 0 else 0
        if quarter > self._shown:
            self._shown = quarter
            self._report(f"{label}: {done / 1e6:.1f} of {total / 1e6:.1f} MB")

    def say(self, text: str) -> None:
        """A line between the steps."""
        self.close()
        self._report(text)

    def close(self) -> None:
        """End the moving line."""
        if self._terminal is not None and self._width:
            self._terminal.write("\n")
            self._terminal.flush()
        self._label, self._shown, self._width = "", -1, 0
