"""The dialects that kenari speaks. A new one is one folder and one line here; the laws run over this table."""

from kenari.dialects.base import Dialect
from kenari.dialects.chat import CHAT
from kenari.dialects.messages import MESSAGES
from kenari.dialects.responses import RESPONSES

DIALECTS: dict[str, Dialect] = {dialect.name: dialect for dialect in (CHAT, MESSAGES, RESPONSES)}
"""By the word that configuration uses."""

BY_PATH: dict[str, Dialect] = {dialect.path: dialect for dialect in DIALECTS.values()}
"""By the path that clients post to."""
