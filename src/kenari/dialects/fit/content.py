"""The parts of a conversation for a target: system texts in their place, images and files as it takes them."""

from operator import is_

import msgspec

from kenari.core.errors import KenariError
from kenari.core.request import (
    AudioPart,
    FilePart,
    ImagePart,
    Notice,
    OpaquePart,
    Part,
    ReasoningPart,
    ResultPart,
    TextPart,
    Turn,
    leading_system,
)
from kenari.dialects.fit.target import Target

_BILLING = b"x-anthropic-billing-header"
_UNSEEN = TextPart(b"[an image was here; this model does not see images]")
_MEDIA = ("image", "document")
"""Kinds that are known, here with a source that is not: a file kept elsewhere."""
_MOVED = TextPart(b"[the image is in the next user message]")


def fit_content(turns: list[Turn], origin: str, target: Target, notices: list[Notice]) -> list[Turn]:
    """The turns with their parts as this target takes them. Raises the 400 that names a part it cannot take."""
    lead = leading_system(turns)
    out: list[Turn] = []
    moved: list[Part] = []
    for position, turn in enumerate(turns):
        if moved and not (turn.role == "user" and any(isinstance(part, ResultPart) for part in turn.parts)):
            out.append(Turn("user", moved))
            moved = []
        fitted = _fit_parts(turn, origin, target, moved, notices)
        if fitted.role == "system":
            fitted = _fit_system(fitted, position < lead, target)
        if fitted.parts or (not turn.parts and origin == target.dialect):
            out.append(fitted)
    if moved:
        out.append(Turn("user", moved))
    return out


def _fit_system(turn: Turn, leading: bool, target: Target) -> Turn:
    """The role of a system text: later ones come from the user where a provider takes them only in front."""
    if not leading and (target.dialect == "messages" or target.profile.system_first_only):
        return msgspec.structs.replace(turn, role="user", developer=False, touched=turn.touched | {"role"})
    if turn.developer and target.dialect == "chat" and not target.profile.developer_role:
        return msgspec.structs.replace(turn, developer=False, touched=turn.touched | {"role"})
    return turn


def _fit_parts(turn: Turn, origin: str, target: Target, moved: list[Part], notices: list[Notice]) -> Turn:
    crossing = origin != target.dialect
    parts: list[Part] = []
    for index, part in enumerate(turn.parts):
        match part:
            case TextPart():
                stays = part.text or not (crossing or (origin == "chat" and part.raw is not None and _says(turn)))
                billing = crossing and turn.role == "system" and part.text.startswith(_BILLING)  # D21
                if stays and not billing:
                    parts.append(part)
            case ImagePart() | FilePart() | AudioPart():
                parts.append(_fit_medium(part, part_path(turn, index, origin), target))
            case ResultPart():
                parts.append(_fit_result(part, target, moved, notices))
            case OpaquePart():
                if part.dialect == target.dialect:
                    parts.append(part)
                elif turn.role != "assistant" and (origin == "chat" or part.kind in _MEDIA):
                    path = part_path(turn, index, origin)
                    raise _cannot(
                        f"{path}: this model takes no such {part.kind[:64]} part. send it in another form", path
                    )
                else:
                    notices.append(_unsayable(part))
            case _:
                parts.append(part)
    if len(parts) == len(turn.parts) and all(map(is_, parts, turn.parts)):
        return turn
    return msgspec.structs.replace(turn, parts=parts, touched=turn.touched | {"content"})


def _says(turn: Turn) -> bool:
    """An empty text beside others is one that providers refuse (D27); a message that is nothing else is its author's."""
    return any(
        not isinstance(part, ReasoningPart) and not (isinstance(part, TextPart) and not part.text)
        for part in turn.parts
    )


def part_path(turn: Turn, index: int, origin: str) -> str:
    """Where a part stands in the client's body, for errors: the message, and which part of it where that is known."""
    if turn.param == "system":
        return f"system[{index}]"
    if not turn.param or (origin == "responses" and turn.raw is None):  # several items are one turn there
        return turn.param
    if isinstance(turn.parts[index], ResultPart) and origin == "chat":  # the message itself is the result
        return f"{turn.param}.content"
    if origin == "chat" and isinstance(turn.parts[0], ReasoningPart):  # a field of its own there, which is read first
        index -= 1
    return f"{turn.param}.content[{index}]"


def _fit_medium(part: ImagePart | FilePart | AudioPart, path: str, target: Target) -> Part:
    param = path or None
    match part:
        case ImagePart():
            if target.vision is False:
                raise _cannot(
                    f"{_at(param)}this model does not see images. remove the image or choose a model with vision", param
                )
            if part.url and not target.profile.image_urls:
                raise _cannot(
                    f"{_at(param)}this model's provider takes no image addresses. send the image as a data URL", param
                )
            return part
        case FilePart():
            if target.takes_files() and not (part.text and target.dialect != "messages"):
                return part
            if part.text:
                return TextPart(part.text)
            raise _cannot(f"{_at(param)}this model takes no documents. send the document's text instead", param)
        case AudioPart():
            if target.dialect == "chat" and target.profile.audio:
                return part
            raise _cannot(f"{_at(param)}this model takes no audio. send text instead", param)


def _fit_result(part: ResultPart, target: Target, moved: list[Part], notices: list[Notice]) -> ResultPart:
    """A tool result whose images the target sees: inside it, in the message behind it, or as a note (D11)."""
    parts: list[Part] = []
    changed = False
    for inner in part.parts:
        if isinstance(inner, ImagePart):
            if target.vision is False:
                parts.append(_UNSEEN)
                changed = True
                continue
            if not target.takes_result_images():
                parts.append(_MOVED)
                moved.append(inner)
                changed = True
                continue
        elif isinstance(inner, FilePart) and not target.takes_files():
            text = inner.text or b"[a document was here; this model takes no documents]"
            parts.append(TextPart(text))
            changed = True
            continue
        elif isinstance(inner, OpaquePart) and inner.dialect != target.dialect:
            notices.append(_unsayable(inner))
            changed = True
            continue
        parts.append(inner)
    return ResultPart(part.call_id, parts, part.is_error, part.cache) if changed else part


def _unsayable(part: OpaquePart) -> Notice:
    return Notice(part.kind, "only its own format has words for it")


def _at(param: str | None) -> str:
    return f"{param}: " if param else ""


def _cannot(message: str, param: str | None) -> KenariError:
    return KenariError("bad_request", message, param, elsewhere=True)
