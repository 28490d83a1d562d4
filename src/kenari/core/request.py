"""A request for an answer, in words that all three formats share.

Values that nobody has to understand stay as they came: texts are `Escaped` (see `events.py`), schemas and numbers are
raw JSON. Everything that has a JSON source keeps it in `raw`, so that a provider of the client's own dialect gets
those very bytes (law L10) until `fit.py` has a reason to change them.
"""

from typing import Literal, TypeAlias

import msgspec
from msgspec import Raw

from kenari.core.events import Escaped, ProofKind

Role: TypeAlias = Literal["system", "user", "assistant"]
Effort: TypeAlias = Literal["none", "minimal", "low", "medium", "high", "xhigh", "max"]
EFFORTS: tuple[Effort, ...] = ("none", "minimal", "low", "medium", "high", "xhigh", "max")


class Notice(msgspec.Struct, frozen=True):
    """Something of the request that does not reach the provider: `name` for the header and the log, `why` for people."""

    name: str
    why: str = ""


class TextPart(msgspec.Struct):
    """Text. `refusal` marks a model's earlier refusal. `cache` is the raw `cache_control` mark."""

    text: Escaped
    refusal: bool = False
    cache: Raw | None = None
    raw: Raw | None = None


class ImagePart(msgspec.Struct):
    """An image: either `url` (http or https), or `media_type` and base64 `data`."""

    url: Escaped = b""
    media_type: str = ""
    data: Escaped = b""
    detail: str | None = None
    cache: Raw | None = None
    raw: Raw | None = None


class FilePart(msgspec.Struct):
    """A document: base64 `data` with its type, a `url`, or plain `text`."""

    filename: Escaped = b""
    media_type: str = ""
    data: Escaped = b""
    url: Escaped = b""
    text: Escaped = b""
    cache: Raw | None = None
    raw: Raw | None = None


class AudioPart(msgspec.Struct):
    """Input audio, base64 with its format (wav, mp3 ...)."""

    data: Escaped
    format: str
    raw: Raw | None = None


class ReasoningPart(msgspec.Struct):
    """Earlier reasoning. `proof` is what the client gave back: a maker's raw proof or one of our envelopes (`kn1.`).

    `kind` says how the client carried it. After `fit` the proof is one that the target's maker issued, or "", and
    `details` what a chat provider wants back in place of the text.
    """

    text: Escaped = b""
    proof: str = ""
    kind: ProofKind = "mark"
    item_id: str = ""
    raw: Raw | None = None
    details: Raw | None = None


class CallPart(msgspec.Struct):
    """A call that the model made earlier.

    `arguments` is escaped JSON text when `quoted` (chat and responses carry it in a string), else the JSON object
    itself (messages). `custom` marks a freeform call whose one argument is plain text. `extra` is what a chat provider
    wants back beside a call of its own.
    """

    call_id: str
    name: str
    arguments: bytes
    quoted: bool = True
    namespace: str | None = None
    custom: bool = False
    cache: Raw | None = None
    raw: Raw | None = None
    extra: Raw | None = None


class ResultPart(msgspec.Struct):
    """The result of a call: texts, images and files."""

    call_id: str
    parts: list["Part"]
    is_error: bool = False
    cache: Raw | None = None
    raw: Raw | None = None


class OpaquePart(msgspec.Struct):
    """A part that only its own dialect has words for; it reaches providers of that dialect and no others."""

    dialect: str
    kind: str
    raw: Raw


Part: TypeAlias = TextPart | ImagePart | FilePart | AudioPart | ReasoningPart | CallPart | ResultPart | OpaquePart


class Turn(msgspec.Struct):
    """One message of the conversation, in order. System texts are turns too: the leading ones are the system prompt.

    Tool results are parts of a `user` turn. `raw` is the client's whole message where one message is one turn, and
    `touched` names what `fit` changed in it since: role, content, calls, reasoning. `param` is the path of the
    message in the client's body, for errors.
    """

    role: Role
    parts: list[Part]
    developer: bool = False
    raw: Raw | None = None
    touched: frozenset[str] = frozenset()
    param: str = ""


class Tool(msgspec.Struct):
    """A tool that the model may call.

    `schema` is opaque raw JSON. `namespace` is the container it came in (D18). `custom` marks a freeform tool (D10),
    `deferred` one that a Messages client loads later (D19). `raw` is its JSON as the client wrote it.
    """

    name: str
    description: Escaped | None = None
    schema: Raw | None = None
    strict: bool | None = None
    namespace: str | None = None
    custom: bool = False
    deferred: bool = False
    cache: Raw | None = None
    raw: Raw | None = None


class ToolChoice(msgspec.Struct, frozen=True):
    """Whether the model must call: `auto`, `none`, `required`, or `named` with the tool's name."""

    mode: Literal["auto", "none", "required", "named"]
    name: str = ""
    namespace: str | None = None


class Thinking(msgspec.Struct, frozen=True):
    """How much the model should reason (R1). `budget` is in tokens; `exclude` hides reasoning from the answer (S34)."""

    effort: Effort | None = None
    budget: int | None = None
    adaptive: bool = False
    exclude: bool = False


class Served(msgspec.Struct, frozen=True, kw_only=True):
    """A tool that kenari runs itself (`kenari:web_search`), as a client asks for it.

    `name` is what the client calls it where its format names such tools, `vendor` the vendor's own type that stands for
    it (D19): such a tool is left out where it is not served. `param` is the path of the entry.
    """

    kind: str
    name: str = ""
    vendor: str = ""
    max_results: int = 5
    max_uses: int | None = None
    allowed_domains: tuple[str, ...] = ()
    blocked_domains: tuple[str, ...] = ()
    param: str = "tools"


SERVED = ("kenari:web_search", "kenari:web_fetch", "kenari:datetime")
"""The kinds of tools that kenari runs itself."""


class Format(msgspec.Struct, frozen=True):
    """The form the answer's text must have: free JSON or JSON of a schema."""

    kind: Literal["json_object", "json_schema"]
    name: str = "response"
    schema: Raw | None = None
    strict: bool | None = None
    description: Escaped | None = None


class Request(msgspec.Struct, kw_only=True):
    """A decoded request. `origin` is the client's dialect, `fields` its top-level members as raw JSON, in order.

    `sampling` holds raw numbers and lists under their common names (temperature, top_p, top_k, seed, ...).
    `extra` names those top-level members that no rule of ours understands. `include_reasoning` etc. live in
    `thinking`. `names` maps the tool names a provider will see to the client's own, filled by `fit`. `served` are the
    tools that kenari runs itself.
    """

    origin: str
    model: str
    turns: list[Turn]
    fields: dict[str, Raw]
    stream: bool = False
    tools: list[Tool] = []
    served: list[Served] = []
    tool_choice: ToolChoice | None = None
    parallel: bool | None = None
    max_output: int | None = None
    stop: list[Escaped] = []
    sampling: dict[str, Raw] = {}
    thinking: Thinking | None = None
    format: Format | None = None
    cache_key: str | None = None
    user: str | None = None
    extra: tuple[str, ...] = ()
    notices: list[Notice] = []
    names: dict[str, "ToolName"] = {}
    plain: bool = False
    """Every turn is one text of a system, a user or an assistant, as it came, and nothing else is asked for: `fit` and
    a dialect's own encoder may take shorter ways to the same result."""
    sample: bool = False
    """Its conversation stands for that of any request which is like it otherwise."""

    def forget(self) -> None:
        """Let go of the conversation, the tools, and all else that keeps the body in memory that it was read from. Copies of
        it share what they did not change, and lose it too. A sample is everybody's, and stays."""
        if not self.sample:
            self.turns.clear()
            self.tools.clear()
            self.fields.clear()
            self.sampling.clear()


class ToolName(msgspec.Struct, frozen=True):
    """What a client calls a tool: its bare name, its namespace, and whether it is a freeform tool."""

    name: str
    namespace: str | None = None
    custom: bool = False


def leading_system(turns: list[Turn]) -> int:
    """How many turns at the start are the system prompt (S139)."""
    count = 0
    for turn in turns:
        if turn.role != "system":
            break
        count += 1
    return count


def forces_call(choice: ToolChoice | None) -> bool:
    """Whether the model must call a tool, any or a named one."""
    return choice is not None and choice.mode in ("required", "named")


def lacks_thought(turns: list[Turn], same: bool) -> bool:
    """Within a round of calls, and before an answer that has begun, a Messages vendor wants the thought that led there;
    without it, it refuses to think on.

    For a Messages client (`same`) only what `fit` took away counts: its own faults are its provider's to name.
    """
    for turn in reversed(turns):
        if turn.role != "assistant":
            continue
        if turn is not turns[-1] and not any(isinstance(part, CallPart) for part in turn.parts):
            return False
        first = turn.parts[0]
        missing = not (isinstance(first, ReasoningPart) and first.proof)
        return missing and (not same or "reasoning" in turn.touched)
    return False
