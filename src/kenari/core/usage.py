"""Token counts of one answer. None means "not reported" and is never the same as zero (contract U1)."""

import msgspec


class Usage(msgspec.Struct, frozen=True, gc=False):
    """Tokens of one provider call, all counts in tokens.

    The input side is disjoint: `fresh` excludes what was read from or written to a cache. `output` includes
    `reasoning`. `estimated` is true when we counted because the provider did not say (U3).
    """

    fresh: int | None = None
    cache_read: int | None = None
    cache_write_5m: int | None = None
    cache_write_1h: int | None = None
    output: int | None = None
    reasoning: int | None = None
    estimated: bool = False

    @property
    def cache_write(self) -> int:
        """All tokens written to a cache, whatever their lifetime."""
        return (self.cache_write_5m or 0) + (self.cache_write_1h or 0)

    @property
    def prompt(self) -> int:
        """The whole input side, cached tokens included."""
        cached = (self.cache_read or 0) + (self.cache_write_5m or 0) + (self.cache_write_1h or 0)
        return (self.fresh or 0) + cached

    @property
    def total(self) -> int:
        """Input and output together."""
        return self.prompt + (self.output or 0)

    def plus(self, other: "Usage") -> "Usage":
        """The tokens of two calls together: the rounds of one answer. A count that neither reported stays unknown."""
        return Usage(
            fresh=_sum(self.fresh, other.fresh),
            cache_read=_sum(self.cache_read, other.cache_read),
            cache_write_5m=_sum(self.cache_write_5m, other.cache_write_5m),
            cache_write_1h=_sum(self.cache_write_1h, other.cache_write_1h),
            output=_sum(self.output, other.output),
            reasoning=_sum(self.reasoning, other.reasoning),
            estimated=self.estimated or other.estimated,
        )

    def merged(self, later: "Usage") -> "Usage":
        """This snapshot corrected by a later one: the last non-zero report of each count wins, never a sum."""
        return Usage(
            fresh=later.fresh or _kept(self.fresh, later.fresh),
            cache_read=later.cache_read or _kept(self.cache_read, later.cache_read),
            cache_write_5m=later.cache_write_5m or _kept(self.cache_write_5m, later.cache_write_5m),
            cache_write_1h=later.cache_write_1h or _kept(self.cache_write_1h, later.cache_write_1h),
            output=later.output or _kept(self.output, later.output),
            reasoning=later.reasoning or _kept(self.reasoning, later.reasoning),
            estimated=self.estimated or later.estimated,
        )


MOST = 10**12
"""No call uses more tokens than this: a larger count is a provider's fault, and neither told nor charged."""


def believed(count: int | None) -> int | None:
    """A provider's count, None ("not reported") where it cannot be one."""
    return count if count is not None and 0 <= count <= MOST else None


def _sum(one: int | None, other: int | None) -> int | None:
    return None if one is None and other is None else (one or 0) + (other or 0)


def _kept(old: int | None, new: int | None) -> int | None:
    return new if old is None else old


def estimate_tokens(text: bytes) -> int:
    """A calibrated guess of the tokens of a UTF-8 text, at least 1 for a text that is not empty.

    Four ASCII bytes or 1.5 other characters make a token on average over the vocabularies in use; it is only used
    where nobody reports a number, and what rests on it is marked as estimated.
    """
    if not text:
        return 0
    if text.isascii():
        return max(1, (len(text) + 3) // 4)
    plain = len(text.translate(None, bytes(range(128, 256))))
    return max(1, (plain + 3) // 4 + (len(text) - plain + 2) // 4)
