"""What several workers cost: CPU per request, memory and idle CPU of a node of 1, 2 and 4 workers, in one run.

    python bench/workers.py [--seconds 3] [--rounds 3] [--workers 1,2,4] [--json OUT]

All processes of a node are pinned to one core, the provider and the load to another (Linux), as in run.py: the question is
what the way to the keeper costs, not how far more cores carry. Requests are made with the bootstrap key over the default
store, so each leaves its hold and its line in the ledger.
"""

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path

import uvloop
from load import Client, closed_loop, request_bytes
from run import CHAT, HERE, KEY, LOAD_CORE, Process, body, free_port


def start_node(folder: Path, provider: int, workers: int) -> Process:
    """kenari with so many workers and a store of its own."""
    port = free_port()
    file = folder / f"workers{workers}.toml"
    file.write_text(
        f'[server]\nlisten = "127.0.0.1:{port}"\nadmin_listen = ""\nworkers = {workers}\n'
        f'[store]\nurl = "sqlite:///{folder}/workers{workers}.db"\n'
        f'[providers.bench]\ndialect = "chat"\nbase_url = "http://127.0.0.1:{provider}/v1"\napi_key = "sk-bench"\n'
        '[models.plain]\ntargets = ["bench/plain"]\n'
    )
    kenari = str(Path(sys.executable).with_name("kenari"))
    argv = [kenari, "serve", "--config", str(file)]
    return Process(f"{workers} workers", argv, port, {"KENARI_BOOTSTRAP_KEY": KEY})


def measure(node: Process, seconds: float) -> dict[str, float]:
    """One round: CPU per request under load, and first-to-last latency; then what the node costs idle."""
    before = node.cpu()
    request = request_bytes(CHAT, body(CHAT, "plain", False), KEY)
    clients: list[Client] = uvloop.run(closed_loop(node.port, request, 32, seconds))
    answers = sum(client.answers for client in clients)
    bad = sum(client.bad for client in clients)
    if bad or not answers:
        print(f"  {node.name} had {bad} bad of {answers}", file=sys.stderr)
    used = node.cpu() - before
    latencies = sorted(one for client in clients for one in client.latencies)
    idle = node.cpu()
    time.sleep(3)
    return {
        "cpu, us/request": used * 1e6 / max(1, answers),
        "p50, ms": latencies[len(latencies) // 2] * 1000 if latencies else float("nan"),
        "idle, % of a core": (node.cpu() - idle) / 3 * 100,
    }


def memory(node: Process) -> dict[str, float]:
    """Megabytes that no other process shares: the top process, and each of the others on average."""
    sizes = [one.memory_full_info().uss / 1e6 for one in node.family()]
    rest = sizes[1:]
    return {"top process, MB": sizes[0], "each worker, MB": statistics.mean(rest) if rest else 0.0}


def main() -> None:
    """Parse, start, measure in turn, print, end what was started."""
    parser = argparse.ArgumentParser(description="a node of several workers against one of one")
    parser.add_argument("--seconds", type=float, default=3)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--workers", default="1,2,4")
    parser.add_argument("--json")
    options = parser.parse_args()
    counts = [int(word) for word in options.workers.split(",")]
    os.sched_setaffinity(0, {LOAD_CORE})
    with tempfile.TemporaryDirectory(prefix="kenari-bench-") as name:
        folder, port = Path(name), free_port()
        started = [Process("provider", [sys.executable, str(HERE / "provider.py"), str(port)], port, {}, LOAD_CORE)]
        try:
            started[0].wait(10)
            nodes: list[Process] = []
            for count in counts:
                nodes.append(start_node(folder, port, count))
                started.append(nodes[-1])
                nodes[-1].wait(30)
            time.sleep(2)  # the last worker may still be starting
            rounds = [[measure(node, options.seconds) for node in nodes] for _ in range(options.rounds)]
            figures = {
                node.name: {word: statistics.median(one[at][word] for one in rounds) for word in rounds[0][at]}
                | memory(node)
                for at, node in enumerate(nodes)
            }
        finally:
            for one in reversed(started):
                one.stop()
    for word in figures[nodes[0].name]:
        print(f"{word:22}" + "".join(f"{figures[node.name][word]:12.2f}" for node in nodes))
    print(f"{'':22}" + "".join(f"{node.name:>12}" for node in nodes))
    if options.json:
        Path(options.json).write_text(json.dumps(figures, indent=1))


if __name__ == "__main__":
    main()
