"""Serve a model with llama.cpp: a program of its own, `python -I -S llama.py LIBRARY WEIGHTS OPTION...`.

It loads the library, which holds llama.cpp's server, into this process and never into kenari's: a fault in it ends this
process only. Needs the standard library only, and knows nothing of kenari. When it cannot start for a reason that it
knows, it writes a line `why REASON` and ends with 1. It ends when its parent does.
"""

import argparse
import importlib
import os
import re
import sys
import time
from pathlib import Path
from typing import Any

_PARENT_SECONDS = 1.0
_MISSING = re.compile(r"^(\S+): cannot open shared object file")


class Unable(Exception):
    """It cannot serve; the text is a reason that can be shown."""


def load(library: Path) -> Any:
    """The library as a module. It is one file without the package around it, so none of that package's code is run."""
    sys.path.insert(0, str(library.parent))
    try:
        return importlib.import_module(library.name.partition(".")[0])
    except ImportError as error:
        missing = _MISSING.match(str(error))
        if missing is not None:
            raise Unable(f"it needs {missing.group(1)}, a library that this system does not have") from error
        raise Unable(f"its library cannot be loaded: {error}") from error


def parameters(library: Any, options: argparse.Namespace) -> Any:
    """The server's settings: the given ones, the processor alone, and as little open to others as can be.

    Nothing of a prompt is shown on another endpoint or kept beyond its slot; web pages elsewhere cannot use it; nothing
    is fetched.
    """
    made = library.CommonParams()
    made.model.path = str(options.weights)
    made.model_alias = {options.alias}
    made.hostnames, made.port = ["127.0.0.1"], options.port
    made.n_parallel, made.n_ctx, made.n_predict = options.slots, options.slots * options.context, options.most
    made.kv_unified, made.ctx_shift = False, False
    made.cpuparams.n_threads = made.cpuparams_batch.n_threads = options.threads
    made.n_gpu_layers, made.no_kv_offload, made.no_op_offload = 0, True, True
    made.use_jinja = True
    made.offline = True
    made.ui = made.endpoint_slots = made.endpoint_props = made.endpoint_metrics = False
    made.cache_ram_mib, made.cache_idle_slots = 0, False
    made.cors_origins, made.cors_credentials, made.cors_origins_explicit = "localhost", False, True
    return made


def main(argv: list[str]) -> int:
    """Serve until the parent is gone, or a signal comes; 1 when it cannot."""
    parent = os.getppid()
    options = parse(argv)
    try:
        library = load(options.library)
        try:
            server = library.Server(parameters(library, options))
        except (RuntimeError, AttributeError, TypeError, ValueError) as error:
            raise Unable(f"llama.cpp does not start: {error}") from error
    except Unable as reason:
        sys.stdout.write(f"why {reason}\n")
        return 1
    sys.stdout.write(f"serving on {server.listening_address}\n")
    sys.stdout.flush()
    while os.getppid() == parent:  # where the kernel does not end us with it, we look
        time.sleep(_PARENT_SECONDS)
    return 0


def parse(argv: list[str]) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(prog="llama.py")
    parser.add_argument("library", type=Path)
    parser.add_argument("weights", type=Path)
    parser.add_argument("--alias", required=True, help="what the model is called")
    parser.add_argument("--slots", type=int, required=True, help="requests at once")
    parser.add_argument("--context", type=int, required=True, help="tokens for each of them")
    parser.add_argument("--most", type=int, required=True, help="output tokens at most")
    parser.add_argument("--threads", type=int, required=True)
    parser.add_argument("--port", type=int, required=True)
    return parser.parse_args(argv)


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
