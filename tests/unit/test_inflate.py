"""Content codings: every cut of the bytes gives the same text, and no body costs more than its limit (F13)."""

import gzip
import random
import zlib
from collections.abc import Callable

import pytest

from kenari.wire.inflate import MAX_MEMBERS, CodingError, Inflater, TooLargeError, inflate, zstd


def raw_deflate(data: bytes) -> bytes:
    machine = zlib.compressobj(wbits=-15)
    return machine.compress(data) + machine.flush()


CODERS: list[tuple[bytes, Callable[[bytes], bytes]]] = [
    (b"gzip", gzip.compress),
    (b" X-GZip ", gzip.compress),
    (b"deflate", zlib.compress),
    (b"deflate", raw_deflate),
    (b"zstd", zstd.compress),
]
PLAIN = b"".join(b"%d," % number for number in range(3000))


@pytest.mark.parametrize(("coding", "code"), CODERS)
@pytest.mark.parametrize("step", [1, 2, 3, 100, 1_000_000])
def test_any_cut_gives_the_same_text(coding: bytes, code: Callable[[bytes], bytes], step: int) -> None:
    coded = code(PLAIN)
    inflater = Inflater(coding)
    assert inflater.complete
    out = b""
    for start in range(0, len(coded), step):
        out += inflater.feed(coded[start : start + step])
        assert inflater.complete == (start + step >= len(coded))
    assert out == PLAIN == inflate(coding, coded, len(PLAIN))


@pytest.mark.parametrize(("coding", "code"), CODERS)
def test_the_limit_is_exact_and_bombs_are_refused(coding: bytes, code: Callable[[bytes], bytes]) -> None:
    bomb = code(b"0" * 5_000_000)
    assert len(inflate(coding, bomb, 5_000_000)) == 5_000_000
    for limit in (4_999_999, 1000, 0):
        with pytest.raises(TooLargeError):
            inflate(coding, bomb, limit)
    with pytest.raises(TooLargeError):
        Inflater(coding).feed(bomb, 100_000)


@pytest.mark.parametrize(("coding", "code"), CODERS)
def test_cut_short_and_garbage_are_errors(coding: bytes, code: Callable[[bytes], bytes]) -> None:
    coded = code(PLAIN)
    for cut in (1, 2, len(coded) // 2, len(coded) - 1):
        with pytest.raises(CodingError):
            inflate(coding, coded[:cut], 1_000_000)
    for garbage in (b"\xff" * 50, b"<html>no</html>", coded + b"<html>"):
        with pytest.raises(CodingError):
            inflate(coding, garbage, 1_000_000)
    assert inflate(coding, b"", 10) == b""


@pytest.mark.parametrize("coding", [b"br", b"gzip, gzip", b"\xff"])
def test_unknown_codings_are_errors(coding: bytes) -> None:
    with pytest.raises(CodingError):
        Inflater(coding)


@pytest.mark.parametrize(("coding", "code"), [(b"gzip", gzip.compress), (b"zstd", zstd.compress)])
def test_members_follow_one_another_but_not_endlessly(coding: bytes, code: Callable[[bytes], bytes]) -> None:
    assert inflate(coding, code(b"one") + code(b"two"), 10) == b"onetwo"
    assert inflate(coding, code(b"a" * 100_000) * 30, 3_000_000) == b"a" * 3_000_000
    with pytest.raises(CodingError):  # each costs a copy of what follows it
        inflate(coding, code(b"") * (MAX_MEMBERS + 2), 10)
    large = code(random.Random(1).randbytes(200_000))
    assert len(inflate(coding, large * 3, 600_000)) == 600_000
