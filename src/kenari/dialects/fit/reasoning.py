"""Earlier reasoning for a target: what it may see, and proofs only for their maker (D5, D20, R3)."""

import msgspec
from msgspec import Raw

from kenari.core.ids import ENVELOPE_PREFIX, SealedPiece
from kenari.core.request import CallPart, Part, ReasoningPart, Turn
from kenari.dialects.fit.target import Target
from kenari.dialects.signed import read
from kenari.wire import jsonx


def fit_reasoning(turns: list[Turn], target: Target) -> list[Turn]:
    """The turns with each reasoning part as this target takes it. A turn that said nothing else is left out."""
    out: list[Turn] = []
    for turn in turns:
        if turn.role != "assistant" or not any(isinstance(part, ReasoningPart) for part in turn.parts):
            out.append(turn)
            continue
        parts: list[Part] = []
        for part in turn.parts:
            parts.extend(_fit_part(part, target) if isinstance(part, ReasoningPart) else [part])
        signed = _signed(turn, target)
        if parts == turn.parts and not signed:
            out.append(turn)
        elif parts:
            touched = turn.touched | ({"reasoning", "calls"} if signed else {"reasoning"})
            parts = [_with_extra(part, signed) for part in parts] if signed else parts
            out.append(msgspec.structs.replace(turn, parts=parts, touched=touched))
    return out


def _signed(turn: Turn, target: Target) -> dict[str, Raw]:
    """What a chat provider wants back beside its own calls, by the id of the call."""
    found: dict[str, Raw] = {}
    if target.dialect == "chat":
        for part in turn.parts:
            if isinstance(part, ReasoningPart) and part.proof:
                signed = [read(piece.value) for piece in _opened(part.proof, target) if piece.kind == "encrypted"]
                found |= {one.call_id: one.extra_content for one in signed if one is not None and one.call_id}
    return found


def _details(part: ReasoningPart, target: Target) -> Raw | None:
    """The `reasoning_details` that this maker told with an answer, None when it did not."""
    signed = [read(piece.value) for piece in _opened(part.proof, target) if piece.kind == "encrypted"]
    found = [
        one
        for told in signed
        if told is not None and not jsonx.is_null(told.details)
        for one in jsonx.elements(told.details)
    ]
    return Raw(jsonx.encode(found)) if found else None


def sign_calls(turns: list[Turn], word: str) -> list[Turn]:
    """The turns with this word for a signature beside the first call of each in which none is signed: one a turn is wanted."""
    extra = Raw(jsonx.encode({"google": {"thought_signature": word}}))
    out: list[Turn] = []
    for turn in turns:
        calls = [part for part in turn.parts if isinstance(part, CallPart)]
        if not calls or any(call.extra is not None for call in calls):
            out.append(turn)
            continue
        parts = [msgspec.structs.replace(part, extra=extra) if part is calls[0] else part for part in turn.parts]
        out.append(msgspec.structs.replace(turn, parts=parts, touched=turn.touched | {"calls"}))
    return out


def _with_extra(part: Part, signed: dict[str, Raw]) -> Part:
    if isinstance(part, CallPart) and part.call_id in signed:
        return msgspec.structs.replace(part, extra=signed[part.call_id], raw=None)
    return part


def _fit_part(part: ReasoningPart, target: Target) -> list[ReasoningPart]:
    match target.dialect:
        case "chat":
            details = _details(part, target) if part.proof else None
            if details is not None:
                return [ReasoningPart(part.text, details=details)]
            if not target.profile.reasoning_content_roundtrip or not part.text:
                return []
            return [part if not part.proof else ReasoningPart(part.text)]
        case "messages":
            return _own_blocks(part, target)
        case _:
            return _own_items(part, target)


def _own_blocks(part: ReasoningPart, target: Target) -> list[ReasoningPart]:
    """The thinking blocks of this maker that a part stands for; without a proof there is none."""
    if not part.proof.startswith(ENVELOPE_PREFIX):
        own = part.proof and target.raw_signatures and part.kind in ("signature", "redacted")
        return [part] if own else []
    text = jsonx.unescape(part.text)
    blocks: list[ReasoningPart] = []
    position = 0
    for piece in _opened(part.proof, target):
        words = text[position : position + piece.length]
        position += piece.length
        if piece.kind in ("signature", "redacted"):
            blocks.append(ReasoningPart(jsonx.escape(words), piece.value, piece.kind))
    return blocks


def _own_items(part: ReasoningPart, target: Target) -> list[ReasoningPart]:
    """The reasoning items for a Responses provider: the words, each piece with the encrypted content that this maker
    issued for it. A client carries several items of one answer as one, whose envelope holds all their proofs (D5)."""
    if not part.proof:
        return _unkept(part)
    items: list[ReasoningPart] = []
    position = 0
    text = jsonx.unescape(part.text)
    for length, proof in _encrypted(part.proof, target):
        words = jsonx.escape(text[position : position + length])
        position += length
        items.append(ReasoningPart(words, proof, "encrypted"))
    rest = text[position:]
    if rest:
        items.append(ReasoningPart(jsonx.escape(rest)))
    return items


def _unkept(part: ReasoningPart) -> list[ReasoningPart]:
    """A thought without a proof. Its id would be looked up where nothing is stored (F3), and not be found."""
    if not part.item_id or part.raw is None:
        return [part]
    members = jsonx.members(part.raw)
    del members["id"]
    return [msgspec.structs.replace(part, item_id="", raw=Raw(jsonx.encode(members)))] if part.text else []


def _encrypted(proof: str, target: Target) -> list[tuple[int, str]]:
    """The encrypted contents of this maker in an envelope, each with the number of characters that it covers: those of
    pieces without one before it included."""
    found: list[tuple[int, str]] = []
    length = 0
    for piece in _opened(proof, target):
        length += piece.length
        if piece.kind == "encrypted":
            found.append((length, piece.value))
            length = 0
    return found


def _opened(proof: str, target: Target) -> list[SealedPiece]:
    """What is in an envelope of this maker; nothing for what is no envelope, or was made elsewhere."""
    sealed = target.envelopes.open(proof) if proof.startswith(ENVELOPE_PREFIX) else None
    if sealed is None or sealed.maker != target.maker:
        return []
    return sealed.pieces
