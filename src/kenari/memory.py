"""What a process does once about what it has of the system: its memory, when its long life begins, and its open files."""

import contextlib
import ctypes
import gc
import re
import sys
from collections.abc import Iterator
from pathlib import Path

if sys.platform != "win32":
    import resource

LARGE_PAGE = 2 * 1024 * 1024
COLLAPSE = 25
"""MADV_COLLAPSE of Linux 6.1: put what is in memory here into large pages, now, whatever the system does by itself."""
MAPS = Path("/proc/self/smaps")
_HEAP = re.compile(
    r"^([0-9a-f]+)-([0-9a-f]+) rw-p 0+ 00:00 0 *(?:\[heap\])?\n(?:(?![0-9a-f]+-|Rss:).*\n)*Rss: +(\d+) kB$", re.M
)
"""A region of memory that is no file, and how much of it is in use."""
ENOUGH_FILES = (1024 * 1024, 65536, 10240)
"""More than the first is never asked for; some systems say that there is no limit, and grant one of the others."""


def settle_memory() -> None:
    """Spare the collector what it need not look at: what is here now stays, and requests leave few cycles. Then put it into
    large pages, where the system has them.

    A request walks through code and objects all over the heap, and finds few of their pages in the processor's table of
    addresses: on a virtual machine each one that is not there costs two dozen reads. 12 MB in six pages instead of
    three thousand make a plain request a seventh cheaper.
    """
    gc.freeze()
    gc.set_threshold(50_000, 20, 50)  # collecting after each 700 objects only costs
    if sys.platform == "linux":
        use_large_pages()


def give_back() -> None:
    """Give the system what is free between the things in the heap, where the C library can (glibc)."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(ctypes.c_size_t(0))


def use_large_pages() -> int:
    """Put the heap into large pages; how many bytes are. Where the kernel cannot, nothing changes."""
    done = 0
    with contextlib.suppress(OSError, AttributeError, ValueError):  # no /proc, another C library
        advise = ctypes.CDLL(None).madvise
        for start, end in heap_regions(MAPS.read_text("ascii", "replace")):
            if advise(ctypes.c_void_p(start), ctypes.c_size_t(end - start), ctypes.c_int(COLLAPSE)) == 0:
                done += end - start
    return done


def heap_regions(smaps: str) -> Iterator[tuple[int, int]]:
    """Addresses of whole large pages of the process's own memory that is mostly in use, from Linux's account of it: the
    heap, and not the stacks of threads, which are large and empty."""
    for begins, ends, kilobytes in _HEAP.findall(smaps):
        start, end = int(begins, 16), int(ends, 16)
        first, last = -(-start // LARGE_PAGE) * LARGE_PAGE, end // LARGE_PAGE * LARGE_PAGE
        if first < last and int(kilobytes) * 1024 * 2 >= end - start:
            yield first, last


def allow_many_files() -> int:
    """Raise the soft limit of open files as far as the hard one lets us; what it is then, 0 where there is none.

    Systems give a process 1,024 or fewer and leave it to servers to take more: a stream is two sockets.
    """
    if sys.platform == "win32":
        return 0
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    for step in ENOUGH_FILES:
        wanted = step if hard == resource.RLIM_INFINITY else min(step, hard)
        if soft == resource.RLIM_INFINITY or wanted <= soft:
            break
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
            return wanted
    return soft
