"""The demo's llama.cpp server with a chat template of our own: `python serve_tool_model.py TEMPLATE LIBRARY WEIGHTS OPTION...`."""

import sys
import time
from pathlib import Path

from kenari.demo.llama import load, parameters, parse


def main(argv: list[str]) -> None:
    """Serve until a signal comes."""
    template, *rest = argv
    options = parse(rest)
    library = load(options.library)
    settings = parameters(library, options)
    settings.chat_template = Path(template).read_text(encoding="utf-8")
    server = library.Server(settings)
    print(f"serving on {server.listening_address}", flush=True)
    while True:
        time.sleep(60)


if __name__ == "__main__":
    main(sys.argv[1:])
