"""When the tests with a real model may be left out: where it is known that it cannot run, and nowhere else."""

from typing import NoReturn

import pytest

from kenari.demo.place import NOT_THIS_PROCESSOR, this_machine, unsupported


def skip_where_it_cannot_run() -> None:
    """Leave out the test when there is no library for this machine."""
    reason = unsupported(this_machine())
    if reason is not None:
        pytest.skip(reason)


def skip_or_fail(reason: str) -> NoReturn:
    """The model did not start: leave the test out when only another processor would help; all else is a failure."""
    if reason.startswith(f"the model's server {NOT_THIS_PROCESSOR};"):
        pytest.skip(reason)
    raise AssertionError(reason)
