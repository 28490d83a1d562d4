"""Faults of ours: what the operator reads of them, and what a client is told."""

import logging
import traceback

from kenari.core.errors import KenariError

_log = logging.getLogger("kenari.gateway")


def log_fault(fault: BaseException, request_id: str) -> None:
    """Log where a fault of ours arose. Its message is left out: it may quote a prompt or a secret."""
    frames = traceback.extract_tb(fault.__traceback__)
    where = " < ".join(f"{frame.filename.rpartition('kenari/')[2]}:{frame.lineno}" for frame in reversed(frames[-8:]))
    _log.error("internal error in request %s: %s at %s", request_id, type(fault).__name__, where)


def internal() -> KenariError:
    """What a client is told of it."""
    return KenariError("internal_error", "something went wrong in kenari. send the request again; tell the operator")
