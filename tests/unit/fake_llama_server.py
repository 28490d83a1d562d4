"""A server program for the tests of the demo: `/health` as llama-server has it, and ways to go wrong.

`python fake_llama_server.py MODE FOLDER --port N`: it writes its pid into a file of FOLDER at each start. MODE: `good`;
`slow` is not healthy at first; `exit` ends at once; `never` is never healthy; `stubborn` ignores SIGTERM; `once` ends
at each start after the first.
"""

import os
import signal
import sys
import time
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path


def main() -> None:
    """Serve until told to end."""
    mode, folder = sys.argv[1], Path(sys.argv[2])
    port = int(sys.argv[sys.argv.index("--port") + 1])
    starts = len(list(folder.glob("start-*")))
    (folder / f"start-{starts}").write_text(str(os.getpid()))
    print("the fake server speaks", flush=True)
    if mode == "exit" or (mode == "once" and starts):
        raise SystemExit(3)
    if mode == "stubborn":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    begun = time.monotonic()

    class Answer(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            bad = mode == "never" or (mode == "slow" and time.monotonic() - begun < 0.3)
            body = b'{"status":"ok"}' if not bad else b'{"error":{"message":"Loading model"}}'
            self.send_response(503 if bad else 200)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

    HTTPServer(("127.0.0.1", port), Answer).serve_forever()


if __name__ == "__main__":
    main()
