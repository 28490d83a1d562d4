"""What must hold of the requests that an agent's task brought to the provider."""

import json
import re
from collections.abc import Sequence

from agents.model import ENCRYPTED, SIGNATURE, Exchange

UNKNOWN = re.compile(
    r"unsupported call|unknown tool|no such tool|tool .{0,60}not (found|available|exist)|invalid tool", re.I
)
"""What agents answer to a call whose name or arguments arrived wrong."""


def assert_nothing_lost(exchanges: Sequence[Exchange], outputs: Sequence[str]) -> None:
    """Each call of the model is answered once and says what it should. (Claude Code sends the results of one round in the
    order in which they came.)"""
    last = exchanges[-1].said
    made = [call for exchange in exchanges[:-1] for call in exchange.play.calls]
    assert [name for _, name, _ in last.calls] == [call.name for call in made]
    ids = [call_id for call_id, _, _ in last.calls]
    results = {result.call_id: result for result in last.results}
    assert len(last.results) == len(ids) == len(outputs)
    assert results.keys() == set(ids)
    for call_id, output in zip(ids, outputs, strict=True):
        result = results[call_id]
        assert output in result.text, (output, result)
        assert not UNKNOWN.search(result.text), result


def assert_stable_prefix(exchanges: Sequence[Exchange], *, tools_grow: bool = False) -> None:
    """Each request begins with the one before it, to the byte, so that a provider's prompt cache hits. Tools are the same
    too, names, words and schemas, unless the agent itself adds some as it goes."""
    for before, after in zip(exchanges, exchanges[1:], strict=False):
        if (
            after.said.dialect == "messages"
        ):  # a place of its own; elsewhere it is among the messages, and may come later
            assert before.said.system == after.said.system
        old, new = (list(map(json.dumps, one.seen.body.get("tools") or [])) for one in (before, after))
        assert set(old) <= set(new) if tools_grow else old == new
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
