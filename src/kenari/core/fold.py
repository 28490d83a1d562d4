"""A plain answer is a folded stream: events -> Reply, and back again."""

from collections.abc import Iterable

import msgspec

from kenari.core.errors import KenariError, interrupted
from kenari.core.events import (
    Args,
    BlockKind,
    Close,
    Escaped,
    Event,
    Failure,
    Foreign,
    Meter,
    Open,
    Reason,
    Seal,
    Source,
    Sources,
    Start,
    Stop,
    Text,
)
from kenari.core.usage import Usage


class Block(msgspec.Struct):
    """One finished block of an answer; `text` is its text, reasoning or arguments, escaped. `foreign` are the frames
    that belong to it and that only their own dialect has words for."""

    kind: BlockKind
    text: Escaped = b""
    call_id: str = ""
    name: str = ""
    namespace: str | None = None
    custom: bool = False
    seals: list[Seal] = []
    logprobs: list[bytes] = []
    raw: bytes = b""
    foreign: list[Foreign] = []


class Reply(msgspec.Struct):
    """A whole answer: its blocks in the order they were opened, how it ended, what it used."""

    blocks: list[Block]
    stop: Stop
    usage: Usage
    sources: tuple[Source, ...] = ()
    searches: int = 0


class Fold:
    """Collects events into a Reply. `error` is set when the answer failed, `stop` when it finished."""

    def __init__(self) -> None:
        self.stop: Stop | None = None
        self.error: KenariError | None = None
        self.usage = Usage()
        self._found = Sources((), 0)
        self._blocks: dict[int, Block] = {}
        self._pieces: dict[int, list[bytes]] = {}

    def add(self, events: Iterable[Event]) -> None:
        """Take the next events."""
        for event in events:
            kind = type(event)
            if kind is Text or kind is Reason or kind is Args:
                self._pieces[event.index].append(event.delta)  # type: ignore[union-attr]
                if isinstance(event, Text) and event.logprobs:
                    self._blocks[event.index].logprobs.append(event.logprobs)
            elif isinstance(event, Open):
                self._blocks[event.index] = Block(
                    event.kind,
                    b"",
                    event.call_id,
                    event.name,
                    event.namespace,
                    event.custom,
                    [],
                    [],
                    event.raw,
                )
                self._pieces[event.index] = []
            elif isinstance(event, (Meter, Start)):
                self.usage = event.usage or self.usage
            elif isinstance(event, Seal):
                self._blocks[event.index].seals.append(event)
            elif isinstance(event, Foreign):
                if event.index in self._blocks:
                    self._blocks[event.index].foreign.append(event)
            elif isinstance(event, Sources):
                self._found = event
            elif isinstance(event, Stop):
                self.stop = event
            elif isinstance(event, Failure):
                self.error = event.error

    def reply(self) -> Reply:
        """The whole answer. Raises the KenariError of a failed one, `stream_interrupted` where no finish was seen."""
        if self.error is not None:
            raise self.error
        if self.stop is None:
            raise interrupted()
        for index, pieces in self._pieces.items():
            self._blocks[index].text = b"".join(pieces)
        found = self._found
        return Reply(list(self._blocks.values()), self.stop, self.usage, found.items, found.searches)


def fold(events: Iterable[Event]) -> Reply:
    """The plain answer that a stream of events amounts to."""
    folded = Fold()
    folded.add(events)
    return folded.reply()


def unfold(reply: Reply) -> list[Event]:
    """The shortest stream that folds to this reply."""
    events: list[Event] = [Start(reply.usage)]
    if reply.searches:
        events.append(Sources(reply.sources, reply.searches))
    for index, block in enumerate(reply.blocks):
        events.append(Open(index, block.kind, block.call_id, block.name, block.namespace, block.custom, block.raw))
        if block.text:
            events.append(_delta(index, block))
        events.extend(Foreign(one.dialect, one.name, one.data, index) for one in block.foreign)
        events.extend(Seal(index, seal.kind, seal.value) for seal in block.seals)
        events.append(Close(index))
    events.append(Meter(reply.usage))
    events.append(reply.stop)
    return events


def _delta(index: int, block: Block) -> Event:
    if block.kind == "reasoning":
        return Reason(index, block.text)
    if block.kind == "call":
        return Args(index, block.text)
    return Text(index, block.text, b",".join(block.logprobs) if len(block.logprobs) == 1 else b"")
