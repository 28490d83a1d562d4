"""`reasoning_details` of a stream put together (OpenRouter): its maker wants signed ones back whole, as it told them."""

from msgspec import Raw

from kenari.wire import jsonx

_GROWING = ("text", "summary", "data")
_PROOFS = ("signature", "data")
_NOTHING = (b"", b"null", b'""')


class _Detail:
    def __init__(self) -> None:
        self.members: dict[str, Raw] = {}
        self.pieces: dict[str, list[bytes]] = {}


class Details:
    """The details so far, in the order in which they began. `signed` once one of them holds a proof."""

    def __init__(self) -> None:
        self.signed = False
        self._details: dict[object, _Detail] = {}

    def add(self, raw: Raw) -> None:
        """The details of one chunk: one of the same kind at the same index goes on."""
        for one in jsonx.elements(raw):
            if jsonx.kind(one) != "object":
                continue
            members = jsonx.members(one)
            kind, index = (bytes(members.get(name, Raw())) for name in ("type", "index"))
            key = (kind, index) if not jsonx.is_null(index) else len(self._details)
            detail = self._details.setdefault(key, _Detail())
            for name, value in members.items():
                if name in _GROWING and jsonx.kind(value) == "string":
                    detail.pieces.setdefault(name, []).append(jsonx.unquoted(value))
                elif not jsonx.is_null(value) or name not in detail.members:
                    detail.members[name] = value
            self.signed = self.signed or any(bytes(members.get(name, b"")) not in _NOTHING for name in _PROOFS)

    def whole(self) -> Raw:
        """All of them as one array."""
        out: list[dict[str, Raw]] = []
        for detail in self._details.values():
            grown = {name: jsonx.quoted_raw(b"".join(pieces)) for name, pieces in detail.pieces.items()}
            out.append(detail.members | grown)
        return Raw(jsonx.one_line(jsonx.encode(out)))
