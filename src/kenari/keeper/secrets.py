"""Secrets that a node makes once and keeps beside its store, mode 0600 (F10, F11)."""

import os
import tempfile
from pathlib import Path

from kenari.keys.secrets import PREFIX, make_key

ADMIN_FILE = "kenari.admin"
KEY_FILE = "kenari.key"
ADMIN_PREFIX = "ka-"
"""What a management token that kenari makes starts with: nobody takes it for an API key."""


def store_folder(url: str) -> Path:
    """Where secrets made by kenari lie: beside the store, or here when the store is a server."""
    return Path(url.removeprefix("sqlite:///")).expanduser().parent if url.startswith("sqlite:///") else Path()


def load_or_make(path: Path, make: bytes) -> tuple[bytes, bool]:
    """The content of a secret file; made with `make` when it is not there. True when it was made now.

    Raises OSError when it can be neither read nor made, or is empty: an empty secret would open everything.
    """
    made = not path.exists() and _make(path, make)
    content = path.read_bytes().strip()
    if not content:
        raise OSError(f"{path} is empty. delete it, and a new one is made")
    return content, made


def _make(path: Path, content: bytes) -> bool:
    """Put a whole file in its place at once, readable by its owner only; False when another process was faster."""
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")  # mode 0600
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content + b"\n")
            file.flush()
            os.fsync(file.fileno())
        os.link(name, path)
    except FileExistsError:
        return False
    finally:
        os.unlink(name)
    return True


def known_secret(configured: str, folder: Path) -> bytes | None:
    """The one secret where there is one already: for those who only read."""
    if configured:
        return configured.encode("utf-8", "surrogateescape")
    path = folder / "kenari.secret"
    return load_or_make(path, b"")[0] if path.exists() else None


def root_secret(configured: str, folder: Path, entropy: bytes) -> bytes:
    """The one secret from which all keys are derived: configured, else `kenari.secret` beside the store."""
    known = known_secret(configured, folder)
    return known if known is not None else load_or_make(folder / "kenari.secret", entropy.hex().encode())[0]


def first_key(configured: str, folder: Path, entropy: bytes) -> tuple[str, bool]:
    """The bootstrap key: configured, else `kenari.key` beside the store. True when it was made now, to be shown once.

    Raises OSError."""
    if configured:
        return configured, False
    key, made = load_or_make(folder / KEY_FILE, make_key(entropy).encode())
    if not key.startswith(PREFIX.encode()) or not key.isascii():
        raise OSError(f"{folder / KEY_FILE} holds no key. delete it, and a new one is made")
    return key.decode(), made


def admin_token(configured: str, folder: Path, entropy: bytes) -> str:
    """The management token: configured, else `kenari.admin` beside the store, made once (F11).

    Raises OSError."""
    if configured:
        return configured
    made = make_key(entropy).removeprefix(PREFIX)
    token, _ = load_or_make(folder / ADMIN_FILE, (ADMIN_PREFIX + made).encode())
    if not token.isascii():
        raise OSError(f"{folder / ADMIN_FILE} holds no token. delete it, and a new one is made")
    return token.decode()
