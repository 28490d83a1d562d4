"""A picture in an agent's project, and the call that looks at it."""

import json
import struct
import zlib
from base64 import b64encode
from pathlib import Path

from upstream import Call

from agents.model import call
from agents.programs import CODEX, QWEN, Place, Program


def png() -> bytes:
    """A small picture: 8 x 8 red points."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    points = zlib.compress(b"".join(b"\0" + b"\xff\0\0" * 8 for _ in range(8)))
    head = struct.pack(">IIBBBBB", 8, 8, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", points) + chunk(b"IEND", b"")


def put_picture(place: Place) -> Path:
    """The picture's file."""
    place.project.mkdir(parents=True, exist_ok=True)
    picture = place.project / "red.png"
    picture.write_bytes(png())
    return picture


def look(program: Program, picture: Path) -> Call:
    """The agent's own call for it."""
    return call("view_image", path=str(picture)) if program is CODEX else program.hands.read(picture)


def sent(program: Program) -> bytes:
    """What must stand in a request that holds it. Qwen Code makes a JPEG of it first: this is how each one begins."""
    return b"/9j/" if program is QWEN else b64encode(png())


def tell_qwen(place: Place) -> None:
    """Qwen Code sends no pictures to a model of which it does not know that it sees."""
    settings = place.home / ".qwen" / "settings.json"
    settings.parent.mkdir(parents=True, exist_ok=True)
    settings.write_text(json.dumps({"model": {"generationConfig": {"modalities": {"image": True}}}}), encoding="utf-8")
