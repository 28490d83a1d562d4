"""Several workers, one keeper: real processes, real signals, real deaths."""

import http.client
import os
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psutil
import pytest
from workers_kit import CHAT, PLAYS, Stream, configuration, said, served, until, workers_of

from tests.gateway import KEY, Gateway, running_gateway
from tests.upstream import scripted_provider

ASK = {"model": "plain", "messages": [{"role": "user", "content": "x"}]}


def connections_of(worker: psutil.Process) -> int:
    """How many clients a worker has."""
    return sum(one.status == "ESTABLISHED" for one in worker.net_connections("tcp"))


def test_all_workers_serve_and_the_keeper_keeps_one_log() -> None:
    with served(4) as (gateway, _):
        workers = workers_of(gateway)
        assert len(workers) == 4
        streams = [Stream(gateway, "hangs").begin() for _ in range(40)]
        counts = [connections_of(worker) for worker in workers]
        assert min(counts) >= 1, counts
        answered = [gateway.call(CHAT, ASK) for _ in range(40)]
        for stream in streams:
            stream.connection.close()
            stream.answer.close()
        for stream in streams:
            assert gateway.line_of(stream.id)["reason"] == "client_closed"
        for answer in answered:
            line = gateway.line_of(answer.headers["x-request-id"])
            assert (line["reason"], line["status"], line["target"]) == ("done", 200, "p/plain")
            assert line["tokens"]["output"] == 6
        assert len(gateway.lines) == 80


def test_no_secret_stands_on_a_command_line_and_only_what_is_needed_is_inherited() -> None:
    with scripted_provider(PLAYS) as provider:
        text = configuration(provider.base_url("chat"), 2)
        env = {"KENARI_SECRET": "root-secret-of-the-test", "KENARI_ADMIN_TOKEN": "admin-token-of-the-test"}
        with running_gateway(text, env=env) as gateway:
            assert gateway.call(CHAT, ASK).status == 200
            for worker in workers_of(gateway):
                words = " ".join(worker.cmdline())
                inherited = set(worker.environ().values())
                for secret in (KEY, "sk-p", *env.values()):
                    assert secret not in words
                    assert secret not in inherited


def test_a_worker_that_is_killed_leaves_one_crashed_line_and_is_started_again() -> None:
    with served(2) as (gateway, provider):
        before = {worker.pid for worker in workers_of(gateway)}
        streams = [Stream(gateway, "hangs").begin() for _ in range(12)]
        victim, other = workers_of(gateway)
        count = connections_of(victim) - _upstream(victim, provider.port)
        assert 0 < count < 12
        victim.kill()
        until(lambda: sum(line["reason"] == "crashed" for line in list(gateway.lines)) == count)
        until(lambda: provider.gone >= 0 and len({one.pid for one in workers_of(gateway)} - before) == 1)
        crashed = {line["id"] for line in gateway.lines if line["reason"] == "crashed"}
        assert len(crashed) == count
        assert crashed < {stream.id for stream in streams}
        assert {line["account"] for line in gateway.lines} == {"operator"}
        until(lambda: said(gateway, "was ended by signal 9; it is started again"))
        assert other.is_running()  # and its streams go on
        until(lambda: _all_answer(gateway, 20))
        for stream in streams:
            if stream.id in crashed:
                assert stream.broken()
            else:
                stream.connection.close()
                stream.answer.close()
        until(lambda: sum(line["reason"] == "client_closed" for line in list(gateway.lines)) == 12 - count)
        ids = [line["id"] for line in gateway.lines]
        assert len(ids) == len(set(ids))


def _upstream(worker: psutil.Process, port: int) -> int:
    return sum(
        one.status == "ESTABLISHED" and bool(one.raddr) and one.raddr.port == port
        for one in worker.net_connections("tcp")
    )


def _all_answer(gateway: Gateway, count: int) -> bool:
    return all(gateway.call(CHAT, ASK).status == 200 for _ in range(count))


def test_connections_that_wait_for_a_dead_worker_are_served_by_the_next_one() -> None:
    """The keeper holds each worker's socket: what the kernel put there is not lost with the worker."""
    with served(1, listen="127.0.0.1:0") as _:
        pass  # one process has no keeper to hold it
    with served(2) as (gateway, _):
        for worker in workers_of(gateway):
            worker.suspend()
        with ThreadPoolExecutor(16) as pool:
            answers = [pool.submit(gateway.call, CHAT, ASK) for _ in range(16)]
            time.sleep(0.3)
            for worker in workers_of(gateway):
                worker.kill()
            assert [answer.result(20).status for answer in answers] == [200] * 16


def test_a_worker_that_an_operator_ends_drains_and_is_replaced() -> None:
    with served(2, drain="5s") as (gateway, _):
        streams = [Stream(gateway, "held").begin() for _ in range(8)]
        first = workers_of(gateway)
        for worker in first:
            worker.terminate()
        until(lambda: not any(_listens(worker) for worker in first))
        for stream in streams:
            assert b"[DONE]" in stream.rest()
        until(lambda: len({one.pid for one in workers_of(gateway)} - {one.pid for one in first}) == 2)
        until(lambda: _serves(gateway))


def _listens(worker: psutil.Process) -> bool:
    try:
        return any(one.status == "LISTEN" for one in worker.net_connections("tcp"))
    except psutil.NoSuchProcess:
        return False


def _serves(gateway: Gateway) -> bool:
    try:
        return gateway.call(CHAT, ASK).status == 200
    except OSError:
        return False


def test_sigterm_drains_all_workers() -> None:
    with served(3, drain="5s") as (gateway, _):
        streams = [Stream(gateway, "held").begin() for _ in range(9)]
        gateway.process.send_signal(signal.SIGTERM)
        until(lambda: _refuses(gateway))
        for stream in streams:
            assert b"[DONE]" in stream.rest()
        assert gateway.process.wait(10) == 0
        gateway.stop()
        ids = {stream.id for stream in streams}
        assert [line["reason"] for line in gateway.lines if line["id"] in ids] == ["done"] * 9


def _refuses(gateway: Gateway) -> bool:
    """Nobody listens any more."""
    try:
        gateway.call("/healthz", method="GET")
    except OSError:
        return True
    return False


def test_drain_has_an_end_and_every_broken_stream_a_line() -> None:
    with served(2, drain="500ms") as (gateway, _):
        workers = workers_of(gateway)
        streams = [Stream(gateway, "hangs").begin() for _ in range(6)]
        began = time.monotonic()
        gateway.process.send_signal(signal.SIGTERM)
        assert gateway.process.wait(10) == 0
        assert 0.4 < time.monotonic() - began < 4
        assert all(stream.broken() for stream in streams)
        gateway.stop()
        assert len(gateway.lines) == 6
        assert not any(worker.is_running() for worker in workers)


def test_a_second_signal_ends_at_once() -> None:
    with served(2, drain="60s") as (gateway, _):
        streams = [Stream(gateway, "hangs").begin() for _ in range(4)]
        gateway.process.send_signal(signal.SIGTERM)
        until(lambda: _refuses(gateway))  # two signals at one moment are one
        began = time.monotonic()
        gateway.process.send_signal(signal.SIGTERM)
        assert gateway.process.wait(10) == 0
        assert time.monotonic() - began < 4
        assert all(stream.broken() for stream in streams)
        gateway.stop()
        assert len(gateway.lines) == 4


def test_workers_that_lose_their_keeper_end_what_they_have_and_leave() -> None:
    with served(2, drain="8s") as (gateway, _):
        workers = workers_of(gateway)
        streams = [Stream(gateway, "held").begin() for _ in range(6)]
        kept = http.client.HTTPConnection(*gateway.address, timeout=10)
        gateway.process.kill()
        gateway.process.wait()
        until(lambda: not any(_listens(worker) for worker in workers))
        with pytest.raises(OSError, match=r"refused|reset"):
            gateway.call(CHAT, ASK)
        for stream in streams:
            assert b"[DONE]" in stream.rest()
        _, alive = psutil.wait_procs(workers, 10)
        assert not alive
        kept.close()
        gateway.stop()
        assert {line["id"] for line in gateway.lines} == {stream.id for stream in streams}


def test_workers_that_cannot_start_are_told_and_kenari_ends(tmp_path: Path) -> None:
    """A worker's module that cannot be imported stands for anything that keeps workers from starting."""
    folder = tmp_path / "broken"
    folder.mkdir()
    (folder / "sitecustomize.py").write_text(
        "import sys\nif 'kenari.worker' in sys.orig_argv:\n    raise SystemExit('no')\n"
    )
    file = tmp_path / "kenari.toml"
    file.write_text('[server]\nlisten = "127.0.0.1:0"\nadmin_listen = "127.0.0.1:0"\nworkers = 2\n')
    ended = subprocess.run(
        [sys.executable, "-m", "kenari.cli", "serve", "--config", str(file)],
        env=os.environ | {"PYTHONPATH": str(folder)},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert ended.returncode == 1
    assert "kenari cannot start: a worker" in ended.stderr


def test_an_address_in_use_is_told(tmp_path: Path) -> None:
    """SO_REUSEPORT would let a second node of the same user share the port in silence."""
    with served(2) as (gateway, _):
        file = tmp_path / "kenari.toml"
        host, port = gateway.address
        file.write_text(f'[server]\nlisten = "{host}:{port}"\nadmin_listen = "127.0.0.1:0"\nworkers = 2\n')
        ended = subprocess.run(
            [sys.executable, "-m", "kenari.cli", "serve", "--config", str(file)],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=30,
            check=False,
        )
        assert ended.returncode == 1
        assert "in use" in ended.stderr


def test_a_unix_socket_is_shared_by_all(tmp_path: Path) -> None:
    path = tmp_path / "k.sock"
    with served(2, listen=f"unix:{path}") as (gateway, _):
        assert gateway.url == f"unix:{path}"
        for _ in range(10):
            done = subprocess.run(
                ["curl", "-s", "-m", "5", "--unix-socket", str(path), "http://k/healthz"],
                capture_output=True,
                text=True,
                check=True,
            )
            assert '"status":"ok"' in done.stdout
