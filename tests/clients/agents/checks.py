"""What must hold of the requests that an agent's task brought to the provider."""

import re
from collections.abc import Sequence

from agents.model import ENCRYPTED, SIGNATURE, Exchange

UNKNOWN = re.compile(
    r"unsupported call|unknown tool|no such tool|tool .{0,60}not (found|available|exist)|invalid tool", re.I
)
"""What agents answer to a call whose name or arguments arrived wrong."""


def assert_nothing_lost(exchanges: Sequence[Exchange], outputs: Sequence[str]) -> None:
    """Each call of the model is answered, in order, and says what it should; thoughts come back where they can."""
    last = exchanges[-1].said
    made = [call for exchange in exchanges[:-1] for call in exchange.play.calls]
    assert [name for _, name, _ in last.calls] == [call.name for call in made]
    assert [result.call_id for result in last.results] == [call_id for call_id, _, _ in last.calls]
    for result, output in zip(last.results, outputs, strict=True):
        assert output in result.text, (output, result)
        assert not UNKNOWN.search(result.text), result


def assert_stable_prefix(exchanges: Sequence[Exchange]) -> None:
    """Each request begins with the one before it, to the byte, so that a provider's prompt cache hits."""
    for before, after in zip(exchanges, exchanges[1:], strict=False):
        assert before.said.system == after.said.system
        assert list(before.said.tools) == list(after.said.tools)
        assert after.said.messages[: len(before.said.messages)] == before.said.messages


def assert_thoughts_return(exchanges: Sequence[Exchange], dialect: str, client: str) -> None:
    """Every thought of the model is in the last request again, with its proof where the format has one.

    Chat has no place for a proof: a thought comes back bare, and a Messages provider takes none without its signature.
    """
    last = exchanges[-1].said
    made = ["".join(exchange.play.reasoning) for exchange in exchanges[:-1] if exchange.play.reasoning]
    bare = client == "chat"
    assert last.reasoning == ([] if bare and dialect == "messages" else made)
    proof = {"messages": SIGNATURE, "responses": ENCRYPTED}.get(dialect)
    if proof:
        assert last.proofs == ([""] if bare else [proof]) * len(last.reasoning)
