"""Keys: their form, how they are found in a request (A1), and secrets that are made once (F10, F11)."""

import os
import stat
from pathlib import Path

import pytest

from kenari.core.caller import Caller
from kenari.core.errors import KenariError
from kenari.core.ids import cache_key, derive_key
from kenari.keeper.secrets import admin_token, first_key, load_or_make, root_secret
from kenari.keys.bootstrap import OPERATOR, BootstrapKeys
from kenari.keys.identify import identify
from kenari.keys.secrets import ALPHABET, checksum, make_key, well_formed

OTHER = Caller(account="other", key="k2")
KEYS = BootstrapKeys({"kn-one": OPERATOR, "kn-same": OPERATOR, "kn-other": OTHER})


def found(**headers: bytes) -> Caller:
    return identify(KEYS, {name.replace("_", "-").encode(): value for name, value in headers.items()})


def refusal(**headers: bytes) -> KenariError:
    with pytest.raises(KenariError) as caught:
        found(**headers)
    error = caught.value
    assert (error.code, error.status) == ("invalid_api_key", 401)
    assert error.should_retry is False
    return error


@pytest.mark.parametrize("value", [b"Bearer kn-one", b"bearer kn-one", b"BEARER   kn-one "])
def test_a1_bearer(value: bytes) -> None:
    assert found(authorization=value) is OPERATOR


def test_a1_x_api_key_s59() -> None:
    assert found(x_api_key=b" kn-other ") is OTHER


@pytest.mark.parametrize("dummy", [b"Bearer dummy", b"Bearer ", b"Basic kn-other", b"kn-other", b""])
def test_a1_of_two_keys_one_valid_one_is_enough(dummy: bytes) -> None:
    assert found(authorization=dummy, x_api_key=b"kn-one") is OPERATOR
    assert found(authorization=b"Bearer kn-one", x_api_key=b"dummy") is OPERATOR


def test_a1_two_valid_keys_of_one_account_pass_and_of_two_accounts_are_401() -> None:
    assert found(authorization=b"Bearer kn-one", x_api_key=b"kn-same") is OPERATOR
    assert "different accounts" in refusal(authorization=b"Bearer kn-one", x_api_key=b"kn-other").message


def test_a1_none_and_wrong_ones_are_401_and_are_not_repeated() -> None:
    assert "no api key was sent" in refusal().message
    assert "no api key was sent" in refusal(authorization=b"Bearer", x_api_key=b"").message
    error = refusal(authorization=b"Bearer kn-wrong-guess", x_api_key=b"\xff\x00")
    assert "wrong-guess" not in error.message


def test_a1_keys_carry_a_checksum() -> None:
    for entropy in (bytes(32), b"\xff" * 32, os.urandom(32)):
        key = make_key(entropy)
        assert len(key) == 3 + 43 + 6
        assert set(key[3:]) <= set(ALPHABET)
        assert well_formed(key)
    assert make_key(bytes(32)) != make_key(bytes(31) + b"\x01")


def test_a1_a_typing_error_is_seen() -> None:
    key = make_key(b"\x07" * 32)
    for position in range(3, len(key)):
        other = "A" if key[position] != "A" else "B"
        assert not well_formed(key[:position] + other + key[position + 1 :])
    assert not well_formed(key[:-1])
    assert not well_formed("sk-" + key[3:])
    assert not well_formed("kn-" + "a" * 42 + checksum("a" * 42))


def test_f11_the_first_key_is_made_once_with_mode_0600_and_shown_once(tmp_path: Path) -> None:
    key, made = first_key("", tmp_path / "deep", b"\x01" * 32)
    path = tmp_path / "deep" / "kenari.key"
    assert made
    assert well_formed(key)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert first_key("", tmp_path / "deep", b"\x02" * 32) == (key, False)
    assert [one.name for one in path.parent.iterdir()] == ["kenari.key"]


def test_f11_the_management_token_is_made_once_with_mode_0600_and_looks_like_no_key_a3(tmp_path: Path) -> None:
    token = admin_token("", tmp_path, b"\x01" * 32)
    path = tmp_path / "kenari.admin"
    assert token.startswith("ka-")
    assert not well_formed(token)
    assert path.read_text().strip() == token
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert admin_token("", tmp_path, b"\x02" * 32) == token
    assert admin_token("configured", tmp_path, b"\x02" * 32) == "configured"
    path.write_bytes(b"\xff\n")
    with pytest.raises(OSError, match="delete it"):
        admin_token("", tmp_path, b"\x02" * 32)


def test_f11_a_configured_key_is_neither_stored_nor_shown(tmp_path: Path) -> None:
    assert first_key("kn-mine", tmp_path, b"\x01" * 32) == ("kn-mine", False)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("content", [b"", b" \n", b"sk-1\n", b"kn-\xff"])
def test_a_key_file_without_a_key_opens_nothing(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "kenari.key").write_bytes(content)
    with pytest.raises(OSError, match="delete it"):
        first_key("", tmp_path, b"\x01" * 32)


def test_a_secret_that_another_process_made_first_is_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "kenari.secret"
    path.write_bytes(b"first\n")

    def missing(self: Path) -> bool:
        return False

    monkeypatch.setattr(Path, "exists", missing)
    assert load_or_make(path, b"second") == (b"first", False)


def test_f10_the_root_secret_is_configured_or_made_once(tmp_path: Path) -> None:
    assert root_secret("given", tmp_path, b"\x01" * 32) == b"given"
    made = root_secret("", tmp_path, b"\x01" * 32)
    assert made == b"01" * 32
    assert root_secret("", tmp_path, b"\x02" * 32) == made
    assert stat.S_IMODE((tmp_path / "kenari.secret").stat().st_mode) == 0o600


def test_f10_every_purpose_has_its_own_key() -> None:
    keys = {derive_key(b"root", purpose) for purpose in ("envelopes", "cache keys", "keys", "byok")}
    assert len(keys) == 4
    assert all(len(key) == 32 for key in keys)
    assert derive_key(b"root", "envelopes") == derive_key(b"root", "envelopes")
    assert derive_key(b"other", "envelopes") not in keys


def test_m3_a_cache_key_is_an_hmac_of_account_and_key() -> None:
    key = derive_key(b"root", "cache keys")
    assert cache_key(key, "a", "conversation") == cache_key(key, "a", "conversation")
    seen = {cache_key(key, "a", "conversation"), cache_key(key, "b", "conversation"), cache_key(key, "a", "other")}
    assert len(seen) == 3
    assert all("conversation" not in one for one in seen)
    assert cache_key(key, "ab", "c") != cache_key(key, "a", "bc")
    assert cache_key(key, "a", "\ud800")


def test_f10_an_empty_secret_file_is_no_secret(tmp_path: Path) -> None:
    (tmp_path / "kenari.secret").write_bytes(b"\n")
    with pytest.raises(OSError, match="is empty"):
        root_secret("", tmp_path, b"\x01" * 32)
