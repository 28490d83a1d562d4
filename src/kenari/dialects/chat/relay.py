"""A chat provider's plain answer for a chat client, in one step where it is one text."""

from kenari.core.events import Stop
from kenari.core.profile import Profile
from kenari.dialects.base import Named, Passed
from kenari.dialects.chat.decode import FINISH
from kenari.dialects.chat.encode import whole
from kenari.dialects.chat.plain import plain_answer

_STOPS = {word: Stop(FINISH[word], word) for word in ("stop", "length")}


def pass_reply(body: bytes, named: Named, profile: Profile) -> Passed | None:
    """What decoding, folding and encoding make of this answer; None where it takes these steps, or counts are missing."""
    said = None if profile.think_tags else plain_answer(body)
    if said is None or said.usage is None or not said.usage.fresh or not said.usage.output:
        return None
    end = b',"finish_reason":"' + said.word.encode() + b'"'
    client = whole(named, b'"' + said.text + b'"', end, said.usage)
    return Passed(client, len(said.text), said.usage, _STOPS[said.word])
