"""A chat provider's plain answer for a chat client, in one step where it is one text."""

from kenari.core.events import Stop
from kenari.core.profile import Profile
from kenari.dialects.base import Named, Passed
from kenari.dialects.chat.decode import FINISH
from kenari.dialects.chat.encode import COUNTED, whole
from kenari.dialects.chat.plain import plain_answer

_ENDS = {word: (Stop(FINISH[word], word), b',"finish_reason":"%b"' % word.encode()) for word in ("stop", "length")}


def pass_reply(body: bytes, named: Named, profile: Profile) -> Passed | None:
    """What decoding, folding and encoding make of this answer; None where it takes these steps, or counts are missing."""
    said = None if profile.think_tags else plain_answer(body)
    usage = said.usage if said is not None else None
    if said is None or usage is None or not usage.fresh or not usage.output:
        return None
    text, fresh, output = said.text, usage.fresh, usage.output
    stop, end = _ENDS[said.word]
    message = b'"' + text + b'"'
    if not (usage.cache_read or usage.cache_write_5m or usage.reasoning):  # two counts are all there is to say
        counts = (fresh, output, fresh + output)
        client = COUNTED % (named.id.encode(), named.created, named.model, message, end, *counts)
    else:
        client = whole(named, message, end, usage)
    return Passed(client, len(text), usage, stop)
