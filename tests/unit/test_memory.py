"""The heap in large pages, and open files (memory.py)."""

import gc
import platform
import subprocess
import sys
from pathlib import Path

import pytest

if sys.platform != "win32":
    import resource

from kenari import memory
from kenari.memory import LARGE_PAGE, allow_many_files, heap_regions, settle_memory, use_large_pages

SMAPS = """55a000000000-55a000700000 rw-p 00000000 00:00 0                          [heap]
Size:               7168 kB
Rss:                6900 kB
7f0000100000-7f0000900000 rw-p 00000000 00:00 0
Size:               8192 kB
Rss:                  12 kB
7f0001000000-7f0001400000 rw-p 00000000 00:00 0
Rss:                4096 kB
7f0002000000-7f0002800000 r-xp 00000000 fe:00 26933                      /usr/lib/libpython3.11.so.1.0
Rss:                8192 kB
7f0003000000-7f0003800000 rw-p 00200000 fe:00 26933                      /usr/lib/libpython3.11.so.1.0
Rss:                8192 kB
7f0004100000-7f0004200000 rw-p 00000000 00:00 0
Rss:                1024 kB
7ffd00000000-7ffd00800000 rw-p 00000000 00:00 0                          [stack]
Rss:                8192 kB
VmFlags: rd wr mr mw me ac sd
"""


def test_the_heap_is_found_and_neither_files_nor_stacks_nor_what_is_empty() -> None:
    assert list(heap_regions(SMAPS)) == [
        (0x55A000000000, 0x55A000600000),
        (0x7F0001000000, 0x7F0001400000),
    ]
    assert list(heap_regions("")) == []
    assert list(heap_regions("nonsense\n\nRss:\n")) == []


@pytest.mark.skipif(sys.platform != "linux", reason="large pages are asked for on Linux")
def test_a_process_has_its_heap_in_large_pages_and_lives_on() -> None:
    kept = [bytes([number % 256]) * 400 for number in range(50_000)]
    done = use_large_pages()
    assert done % LARGE_PAGE == 0
    assert all(one == bytes([number % 256]) * 400 for number, one in enumerate(kept))


def test_where_there_is_no_account_of_memory_nothing_is_done(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(memory, "MAPS", tmp_path / "nothing")
    assert use_large_pages() == 0


def test_settling_spares_the_collector(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "use_large_pages", lambda: 0)
    before = gc.get_threshold()
    try:
        settle_memory()
        assert gc.get_freeze_count() > 0
        assert gc.get_threshold()[0] == 50_000
    finally:
        gc.unfreeze()
        gc.set_threshold(*before)


@pytest.mark.skipif(sys.platform == "win32", reason="there is no such limit")
def test_as_many_files_as_the_system_allows() -> None:
    """A stream is two sockets, and systems give a process 1,024 files or fewer."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(256, before[0]), before[1]))
        assert allow_many_files() == resource.getrlimit(resource.RLIMIT_NOFILE)[0] >= min(before[0], 10240)
        assert resource.getrlimit(resource.RLIMIT_NOFILE)[1] == before[1]
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


FREED = """
from pathlib import Path
from kenari.memory import give_back

def resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096

things = [bytes(2000) for _ in range(20_000)]
kept = things[::100]  # so that the heap has no end that is free
del things
before = resident()
give_back()
print(before - resident())
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="another C library keeps what it has")
def test_what_is_free_between_things_goes_back() -> None:
    """Of 40 MB nearly all."""
    done = subprocess.run([sys.executable, "-c", FREED], capture_output=True, text=True, check=True, timeout=30)
    assert int(done.stdout) > 30_000_000
