"""Measures kenari against nginx as a bare byte proxy and against LiteLLM's proxy, in one run on one core.

    python bench/run.py [--only plain,paced] [--seconds 3] [--rounds 3] [--no-litellm] [--json OUT]

Everything runs on loopback: the scripted provider and the load on one core, the gateway under test pinned to another
(Linux). The figure that counts is the CPU time of the gateway's process tree per request or per event: it is stable under
neighbours, where throughput is not. Ratios within one run are what the goals speak of; absolute numbers do not travel.

nginx comes from the system (`nginx` on the PATH), LiteLLM from its own environment (`--litellm PATH/TO/bin/litellm`); what
is not there is left out and said so. Needs psutil (requirements/bench.txt).
"""

import argparse
import asyncio
import json
import os
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path
from typing import Any

import psutil
import uvloop
from load import MARK, closed_loop, connect, one_each, request_bytes
from provider import BURST_EVENTS, PACED_EVENTS

HERE = Path(__file__).resolve().parent
KEY = "kn-bench"
TOKEN = "the management token of the measurement"
CHAT, RESPONSES = "/v1/chat/completions", "/v1/responses"
GATEWAY_CORE, LOAD_CORE = 0, 1


def free_port() -> int:
    """A loopback port that is free now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def body(path: str, model: str, stream: bool, size: int = 0) -> bytes:
    """A request of about 160 bytes, or with `size` bytes of conversation."""
    text = "Tell me something short about the sea." + " and more" * (size // 9)
    words: dict[str, Any] = {"model": model, "stream": stream}
    words |= {"input": text} if path == RESPONSES else {"messages": [{"role": "user", "content": text}]}
    return json.dumps(words).encode()


class Process:
    """A program that this run started, pinned to a core, with its CPU time and memory."""

    def __init__(self, name: str, argv: list[str], port: int, env: dict[str, str], core: int = GATEWAY_CORE) -> None:
        self.name, self.port = name, port
        self.log = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the process
        self.process = subprocess.Popen(
            ["taskset", "-c", str(core), *argv],
            env=os.environ | env,
            stdout=self.log,
            stderr=self.log,
            start_new_session=True,
        )
        self.seen: dict[int, float] = {}
        self.admin = 0

    def family(self) -> list[psutil.Process]:
        """The process and its children."""
        top = psutil.Process(self.process.pid)
        return [top, *top.children(recursive=True)]

    def cpu(self) -> float:
        """CPU seconds of the process tree so far, those that have ended included as last seen."""
        for one in self.family():
            times = one.cpu_times()
            self.seen[one.pid] = times.user + times.system
        return sum(self.seen.values())

    def memory(self) -> int:
        """Unique bytes of the process tree."""
        return sum(one.memory_full_info().uss for one in self.family())

    def wait(self, seconds: float) -> float:
        """Seconds until the port answers."""
        began = time.perf_counter()
        while time.perf_counter() - began < seconds:
            try:
                socket.create_connection(("127.0.0.1", self.port), 0.2).close()
                return time.perf_counter() - began
            except OSError:
                if self.process.poll() is not None:
                    break
                time.sleep(0.01)
        self.log.seek(0)
        raise SystemExit(f"{self.name} did not start: {self.log.read()[-2000:].decode(errors='replace')}")

    def stop(self) -> None:
        """End it, by its own process group."""
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGTERM)
            try:
                self.process.wait(5)
            except subprocess.TimeoutExpired:
                os.killpg(self.process.pid, signal.SIGKILL)


def start_kenari(folder: Path, provider: int, name: str = "kenari", store: str = "none:") -> Process:
    """kenari with the bootstrap key and one model for each behaviour of the provider."""
    port, admin = free_port(), free_port()
    models = "".join(
        f'[models.{model}]\ntargets = ["bench/{model}"]\nprice = {{ input = "1", output = "2" }}\n'
        for model in ("plain", "burst", "paced", "silent", "first5", "flood")
    )
    (folder / f"{name}.toml").write_text(
        f'[server]\nlisten = "127.0.0.1:{port}"\nadmin_listen = "127.0.0.1:{admin}"\n[store]\nurl = "{store}"\n'
        f'[providers.bench]\ndialect = "chat"\nbase_url = "http://127.0.0.1:{provider}/v1"\napi_key = "sk-bench"\n'
        + models
    )
    kenari = str(Path(sys.executable).with_name("kenari"))
    env = {"KENARI_BOOTSTRAP_KEY": KEY, "KENARI_SECRET": "a secret of the measurement", "KENARI_ADMIN_TOKEN": TOKEN}
    process = Process(name, [kenari, "serve", "--config", str(folder / f"{name}.toml")], port, env)
    process.admin = admin
    return process


def prepaid(gateway: Process) -> str:
    """The secret of a key with a balance."""

    def manage(path: str, words: dict[str, Any]) -> Any:
        headers = {"authorization": f"Bearer {TOKEN}", "content-type": "application/json"}
        url = f"http://127.0.0.1:{gateway.admin}/admin/v1{path}"
        with urllib.request.urlopen(
            urllib.request.Request(url, json.dumps(words).encode(), headers), timeout=5
        ) as answer:
            return json.loads(answer.read())

    account = manage("/accounts", {"name": "bench", "credit": "1000000"})["id"]
    return manage("/keys", {"account": account, "name": "bench", "budget": {"amount": "900000", "window": "month"}})[
        "secret"
    ]


def start_nginx(folder: Path, provider: int) -> Process:
    """nginx as a byte proxy without buffering, keep-alive on both sides, one worker."""
    port = free_port()
    (folder / "nginx.conf").write_text(f"""
daemon off; worker_processes 1; pid {folder}/nginx.pid; error_log {folder}/error.log;
events {{ worker_connections 8192; }}
http {{ access_log off; client_body_temp_path {folder}/b; proxy_temp_path {folder}/p; fastcgi_temp_path {folder}/f;
uwsgi_temp_path {folder}/u; scgi_temp_path {folder}/s; client_max_body_size 64m; client_body_buffer_size 1m; keepalive_requests 10000000;
upstream up {{ server 127.0.0.1:{provider}; keepalive 256; keepalive_requests 10000000; }}
server {{ listen 127.0.0.1:{port} backlog=4096; location / {{ proxy_pass http://up; proxy_http_version 1.1; proxy_set_header Connection "";
proxy_buffering off; proxy_buffer_size 64k; proxy_buffers 8 64k; proxy_read_timeout 600s; }} }} }}""")
    return Process("nginx", ["nginx", "-c", str(folder / "nginx.conf")], port, {})


def start_litellm(folder: Path, provider: int, binary: str) -> Process:
    """LiteLLM's proxy, one worker, no database, no callbacks."""
    port = free_port()
    models = "".join(
        f"  - model_name: {name}\n    litellm_params: {{model: openai/{name}, api_base: 'http://127.0.0.1:{provider}/v1', api_key: sk-bench}}\n"
        for name in ("plain", "burst", "paced", "first5")
    )
    (folder / "litellm.yaml").write_text(f"model_list:\n{models}general_settings:\n  master_key: {KEY}\n")
    argv = [
        binary,
        "--config",
        str(folder / "litellm.yaml"),
        "--host",
        "127.0.0.1",
        "--port",
        str(port),
        "--num_workers",
        "1",
    ]
    env = {
        "LITELLM_LOCAL_MODEL_COST_MAP": "True",
        "LITELLM_MODE": "PRODUCTION",
        "PYTHONNOUSERSITE": "1",
        "LITELLM_LOG": "ERROR",
        "NO_DOCS": "True",
    }
    return Process("litellm", argv, port, env)


class Bench:
    """Runs the workloads, interleaved over the gateways, and keeps every figure."""

    def __init__(self, gateways: list[Process], provider: int, seconds: float, rounds: int) -> None:
        self.gateways, self.provider, self.seconds, self.rounds = gateways, provider, seconds, rounds
        self.figures: dict[str, dict[str, list[float]]] = {}
        self.billing: list[Process] = []
        """The same kenari without a store, and with one."""

    def note(self, workload: str, gateway: str, value: float) -> None:
        """Keep one figure."""
        self.figures.setdefault(workload, {}).setdefault(gateway, []).append(value)

    def median(self, workload: str, gateway: str) -> float | None:
        """The median over the rounds."""
        values = self.figures.get(workload, {}).get(gateway)
        return statistics.median(values) if values else None

    async def plain(self) -> None:
        """Plain chat requests over 32 connections: CPU microseconds per request."""
        for gateway in self.interleaved():
            before = gateway.cpu()
            clients = await closed_loop(
                gateway.port, request_bytes(CHAT, body(CHAT, "plain", False), KEY), 32, self.seconds
            )
            self.count(
                "plain, us/request", gateway, before, sum(c.answers for c in clients), sum(c.bad for c in clients)
            )

    async def large(self) -> None:
        """Plain chat requests of 0.5 MB over 4 connections."""
        for gateway in self.interleaved():
            before = gateway.cpu()
            request = request_bytes(CHAT, body(CHAT, "plain", False, 500_000), KEY)
            clients = await closed_loop(gateway.port, request, 4, self.seconds)
            self.count(
                "0.5 MB body, us/request", gateway, before, sum(c.answers for c in clients), sum(c.bad for c in clients)
            )

    async def burst(self) -> None:
        """Streams of 200 events at once over 16 connections, same format and translated."""
        for path in (CHAT, RESPONSES):
            for gateway in self.interleaved():
                if path == RESPONSES and gateway.name == "nginx":
                    continue
                before = gateway.cpu()
                clients = await closed_loop(
                    gateway.port, request_bytes(path, body(path, "burst", True), KEY), 16, self.seconds
                )
                count = sum(c.answers for c in clients) * BURST_EVENTS
                name = "burst, us/event" if path == CHAT else "burst translated, us/event"
                self.count(name, gateway, before, count, sum(c.bad for c in clients))

    async def paced(self) -> None:
        """100 streams with one event each 20 ms, same format and translated (20 streams for a gateway that cannot carry 100)."""
        for path in (CHAT, RESPONSES):
            for gateway in self.interleaved():
                if path == RESPONSES and gateway.name == "nginx":
                    continue
                streams = 20 if gateway.name == "litellm" else 100
                request = request_bytes(path, body(path, "paced", True), KEY)
                before = gateway.cpu()
                clients = await one_each(gateway.port, request, streams, 60)
                name = "paced, us/event" if path == CHAT else "paced translated, us/event"
                count = sum(c.answers for c in clients) * PACED_EVENTS
                self.count(name, gateway, before, count, sum(c.bad for c in clients))

    async def first(self) -> None:
        """Time to the first content over the provider's own, one connection: median milliseconds added."""
        request = request_bytes(CHAT, body(CHAT, "first5", True), KEY)
        for gateway in self.interleaved():
            direct = await closed_loop(self.provider, request, 1, self.seconds / 2)
            through = await closed_loop(gateway.port, request, 1, self.seconds / 2)
            added = statistics.median(through[0].first) - statistics.median(direct[0].first)
            self.note("added time to first content, ms", gateway.name, added * 1000)

    async def billed(self) -> None:
        """What a bill costs: CPU of a plain request over 32 connections and over one, and the time to the first content,
        without a store and with SQLite."""
        plain = request_bytes(CHAT, body(CHAT, "plain", False), KEY)
        first = request_bytes(CHAT, body(CHAT, "first5", True), KEY)
        for gateway in [one for _ in range(self.rounds) for one in self.billing]:
            for connections in (32, 1):
                before = gateway.cpu()
                clients = await closed_loop(gateway.port, plain, connections, self.seconds)
                counts = sum(c.answers for c in clients), sum(c.bad for c in clients)
                self.count(f"billing, {connections} connections, us/request", gateway, before, *counts)
            clients = await closed_loop(gateway.port, first, 1, self.seconds)
            self.note("billing, time to first content, ms", gateway.name, statistics.median(clients[0].first) * 1000)

    async def reach(self) -> None:
        """How long a request takes from its client to the provider, without a store and with SQLite, by a prepaid key, in
        short turns of both: median and 95th percentile, milliseconds."""
        words = json.loads(body(CHAT, "plain", False)) | {"user": MARK.decode()}
        times: dict[str, list[float]] = {}
        keys = {gateway.name: prepaid(gateway) for gateway in self.billing if gateway.name == "billed"}
        await asyncio.sleep(2.5)  # until the key is known
        for _ in range(self.rounds * 8):
            for gateway in self.billing:
                key = keys.get(gateway.name, KEY)
                self.lines("/arrived")
                clients = await closed_loop(
                    gateway.port, request_bytes(CHAT, json.dumps(words).encode(), key), 1, self.seconds / 8
                )
                if clients[0].bad:
                    print(f"  reach: {gateway.name} had {clients[0].bad} bad", file=sys.stderr)
                came = self.lines("/arrived")
                found = [there - sent for sent, there in zip(clients[0].sent, came, strict=False)]
                times.setdefault(gateway.name, []).extend(found[2:])  # the first ones open connections
        for name, found in times.items():
            found.sort()
            self.note("billing, to the provider, p50 ms", name, found[len(found) // 2] * 1000)
            self.note("billing, to the provider, p95 ms", name, found[len(found) * 19 // 20] * 1000)

    async def silent(self) -> None:
        """1,000 open streams that say nothing: kB and idle CPU per mille."""
        request = request_bytes(CHAT, body(CHAT, "silent", True), KEY)
        for gateway in self.gateways:
            if gateway.name == "litellm":
                continue
            before = gateway.memory()
            clients = await connect(gateway.port, request, 1000, lambda: False)
            await asyncio.sleep(2)
            opened = sum(bool(c.first) for c in clients)
            self.note("silent stream, kB", gateway.name, (gateway.memory() - before) / 1000 / max(1, opened))
            cpu = gateway.cpu()
            await asyncio.sleep(4)
            self.note("1,000 silent streams, % of a core", gateway.name, (gateway.cpu() - cpu) / 4 * 100)
            for client in clients:
                if client.transport:
                    client.transport.abort()
            await asyncio.sleep(1)

    async def leaving(self) -> None:
        """From a client's going to the provider's closing, silent streams: worst of 20, milliseconds."""
        request = request_bytes(CHAT, body(CHAT, "silent", True), KEY)
        for gateway in self.gateways:
            if gateway.name == "litellm":
                continue
            known = len(self.closed())
            clients = await connect(gateway.port, request, 20, lambda: False)
            await asyncio.sleep(0.5)
            left = time.monotonic()
            for client in clients:
                if client.transport:
                    client.transport.abort()
            await asyncio.sleep(1)
            closed = self.closed()[known:]
            worst = max(closed) - left if len(closed) >= 20 else float("nan")
            self.note("provider closed after a client left, ms", gateway.name, worst * 1000)

    async def slow_reader(self) -> None:
        """A client that stops reading while the provider pushes 64 MB: growth of memory, kB."""
        request = request_bytes(CHAT, body(CHAT, "flood", True), KEY)
        for gateway in self.gateways:
            if gateway.name == "litellm":
                continue
            before = gateway.memory()
            clients = await connect(gateway.port, request, 1, lambda: False)
            await asyncio.sleep(0.3)
            transport = clients[0].transport
            assert transport
            transport.pause_reading()
            await asyncio.sleep(3)
            self.note("slow reader, kB", gateway.name, (gateway.memory() - before) / 1000)
            transport.abort()
            await asyncio.sleep(0.3)

    def closed(self) -> list[float]:
        """When calls were broken off, as the provider saw it."""
        return self.lines("/closed")

    def lines(self, path: str) -> list[float]:
        """Times that the provider tells."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self.provider}{path}", timeout=5) as answer:
            return [float(line) for line in answer.read().split()]

    def interleaved(self) -> list[Process]:
        """Every gateway in turn, `rounds` times; slow ones once."""
        return [g for turn in range(self.rounds) for g in self.gateways if turn == 0 or g.name != "litellm"]

    def count(self, workload: str, gateway: Process, before: float, count: int, bad: int) -> None:
        """Keep CPU microseconds per thing counted."""
        if bad or not count:
            print(f"  {workload}: {gateway.name} had {bad} bad of {count}", file=sys.stderr)
        self.note(workload, gateway.name, (gateway.cpu() - before) * 1e6 / max(1, count))

    def report(self) -> dict[str, dict[str, float | None]]:
        """Print medians and ratios."""
        names = [gateway.name for gateway in self.gateways]
        out: dict[str, dict[str, float | None]] = {}
        for workload in [name for name in self.figures if name.startswith("billing")]:
            row = {name: statistics.median(values) for name, values in self.figures.pop(workload).items()}
            out[workload] = {name: value for name, value in row.items()}
            ratio, added = row["billed"] / row["unbilled"], row["billed"] - row["unbilled"]
            print(
                f"{workload:44}{row['unbilled']:12.2f} unbilled{row['billed']:12.2f} billed{ratio:8.2f} x{added:10.2f} more"
            )
        print(f"{'':44}" + "".join(f"{name:>12}" for name in names) + f"{'/nginx':>10}{'litellm/':>10}")
        for workload in self.figures:
            row = {name: self.median(workload, name) for name in names}
            ours, nginx, litellm = row.get("kenari"), row.get("nginx"), row.get("litellm")
            if (
                nginx is None and "translated" in workload
            ):  # a byte proxy cannot translate: compare with its pass-through
                nginx = self.median(workload.replace(" translated", ""), "nginx")
            cells = "".join(f"{value:12.2f}" if value is not None else f"{'-':>12}" for value in row.values())
            ratio = f"{ours / nginx:10.2f}" if ours is not None and nginx else f"{'':10}"
            times = f"{litellm / ours:10.0f}" if ours and litellm else ""
            print(f"{workload:44}{cells}{ratio}{times}")
            out[workload] = row | {"ratio_nginx": ours / nginx if ours is not None and nginx else None}
        return out


WORKLOADS = ("plain", "large", "burst", "paced", "first", "billed", "reach", "silent", "leaving", "slow_reader")


def main() -> None:
    """Parse, start, measure, print, end what was started."""
    parser = argparse.ArgumentParser(description="kenari against nginx and LiteLLM, in one run")
    parser.add_argument("--only", default=",".join(WORKLOADS))
    parser.add_argument("--seconds", type=float, default=3)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--litellm", default="litellm")
    parser.add_argument("--no-litellm", action="store_true")
    parser.add_argument("--json")
    options = parser.parse_args()
    os.sched_setaffinity(0, {LOAD_CORE})
    with tempfile.TemporaryDirectory(prefix="kenari-bench-") as name:
        folder, port = Path(name), free_port()
        started = [Process("provider", [sys.executable, str(HERE / "provider.py"), str(port)], port, {}, LOAD_CORE)]
        try:
            started[0].wait(10)
            gateways = [start_kenari(folder, port)]
            started += gateways
            print(f"kenari listens after {gateways[0].wait(10):.2f} s")
            for starter in (start_nginx, start_litellm):
                try:
                    if starter is start_litellm:
                        if options.no_litellm:
                            continue
                        one = start_litellm(folder, port, options.litellm)
                    else:
                        one = start_nginx(folder, port)
                    started.append(one)
                    one.wait(90)
                    gateways.append(one)
                except (SystemExit, FileNotFoundError) as error:
                    print(f"left out: {error}", file=sys.stderr)
            bench = Bench(gateways, port, options.seconds, options.rounds)
            if {"billed", "reach"} & set(options.only.split(",")):
                for kind, store in (("unbilled", "none:"), ("billed", f"sqlite:///{folder}/kenari.db")):
                    bench.billing.append(start_kenari(folder, port, kind, store))
                    started.append(bench.billing[-1])
                    bench.billing[-1].wait(10)
            for workload in options.only.split(","):
                uvloop.run(getattr(bench, workload)())
            figures = bench.report()
            if options.json:
                Path(options.json).write_text(json.dumps(figures, indent=1))
        finally:
            for one in reversed(started):
                one.stop()


if __name__ == "__main__":
    main()
