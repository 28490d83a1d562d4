"""What a server tool is: something that the gateway runs itself while a model waits for it."""

from collections.abc import Awaitable, Mapping
from typing import Any, Protocol

import msgspec

from kenari.core.events import Source
from kenari.core.request import Served
from kenari.core.usage import estimate_tokens


class ToolError(Exception):
    """A tool could not do what it was asked. `message` is for the model: what was wrong and what it can do."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """What a run brought: text for the model, the pages it rests on, how often the web was searched, and what that
    costs beside tokens, in 1e-9 currency units."""

    text: str
    sources: tuple[Source, ...] = ()
    searches: int = 0
    fee: int = 0


class ServerTool(Protocol):
    """A tool. `name`, `description` and `schema` (a JSON Schema) are what the model reads; `fee` is what a run costs at
    most beside tokens, in 1e-9 currency units."""

    kind: str
    name: str
    description: str
    schema: bytes
    fee: int

    def run(self, arguments: Mapping[str, Any], served: Served) -> Awaitable[Outcome]:
        """Do it once; `served` is the entry of the client's request. Raises ToolError."""
        ...


class ToolSettings(msgspec.Struct, frozen=True, kw_only=True):
    """`[tools]`: how often a model may call before it has to answer, seconds for one run, tokens of one result."""

    rounds: int = 5
    timeout: float = 30.0
    result_tokens: int = 6000
    web_fetch: bool = True


def text_argument(arguments: Mapping[str, Any], name: str) -> str:
    """A text that has to be there. Raises ToolError."""
    value = arguments.get(name)
    if not isinstance(value, str) or not value.strip():
        raise ToolError(f"the argument {name} is missing. call the tool again with {name} as a text")
    return value.strip()


def cut_to_tokens(text: str, tokens: int) -> tuple[str, bool]:
    """The beginning of a text that makes about this many tokens, and whether something was left out."""
    if estimate_tokens(text.encode("utf-8", "replace")) <= tokens:
        return text, False
    low, high = 0, len(text)
    while low < high:
        middle = (low + high + 1) // 2
        if estimate_tokens(text[:middle].encode("utf-8", "replace")) <= tokens:
            low = middle
        else:
            high = middle - 1
    return text[:low], True
