"""Secrets that a node makes once and keeps beside its store, mode 0600 (F10, F11)."""

import os
from pathlib import Path

from kenari.keys.secrets import make_key


def load_or_make(path: Path, make: bytes) -> tuple[bytes, bool]:
    """The content of a secret file; made with `make` when it is not there. True when it was made now.

    Raises OSError when it can be neither read nor made.
    """
    try:
        return path.read_bytes().strip(), False
    except FileNotFoundError:
        pass
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(make + b"\n")
    return make, True


def root_secret(configured: str, folder: Path, entropy: bytes) -> bytes:
    """The one secret from which all keys are derived: configured, else `kenari.secret` beside the store."""
    if configured:
        return configured.encode()
    return load_or_make(folder / "kenari.secret", entropy.hex().encode())[0]


def first_key(configured: str, folder: Path, entropy: bytes) -> tuple[str, bool]:
    """The bootstrap key: configured, else `kenari.key` beside the store. True when it was made now, to be shown once."""
    if configured:
        return configured, False
    key, made = load_or_make(folder / "kenari.key", make_key(entropy).encode())
    return key.decode(), made
