"""Live reload: what holds at once, what waits for a restart, and that no request notices."""

import asyncio
import http.client
import os
import pty
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import msgspec
import pytest
import trustme
from workers_kit import CHAT, PLAYS, Stream, configuration, rewrite, said, served, until, workers_of

from kenari.config import Config, ConfigError, parse_config
from kenari.config.reload import LIVE, LIVE_SERVER, merge
from kenari.node import Reload
from tests.gateway import Gateway, running_gateway
from tests.upstream import scripted_provider

MODEL = {"targets": ["p/m"]}
PROVIDER = {"dialect": "chat", "base_url": "http://127.0.0.1:1/v1"}


def parsed(env: dict[str, str] | None = None, **tables: Any) -> Config:
    values = {"providers": {"p": PROVIDER}, "models": {"m": MODEL}} | tables
    return parse_config(values, env or {}, "kenari.toml")


def test_what_requests_follow_holds_at_once() -> None:
    old = parsed()
    new = parsed(models={"m": MODEL, "n": MODEL}, server={"keepalive": "1s", "drain": "7s", "max_body": "1KiB"})
    merged, waiting = merge(old, new)
    assert (merged, waiting) == (new, ())


def test_what_needs_a_restart_stays_and_is_named_without_its_value() -> None:
    old = parsed({"KENARI_SECRET": "old"})
    new = parsed(
        {"KENARI_SECRET": "new", "KENARI_ADMIN_TOKEN": "t"},
        server={"listen": "127.0.0.1:1", "workers": 3, "log": "text", "keepalive": "2s"},
        store={"url": "sqlite:///other.db"},
        billing={"currency": "IDR"},
    )
    merged, waiting = merge(old, new)
    assert set(waiting) == {
        "server.listen",
        "server.workers",
        "server.log",
        "store.url",
        "billing.currency",
        "KENARI_SECRET",
        "KENARI_ADMIN_TOKEN",
    }
    assert merged.server == msgspec.structs.replace(old.server, keepalive=2.0)
    assert (merged.store_url, merged.currency, merged.secret) == (old.store_url, old.currency, old.secret)


def test_a_port_does_not_change_its_protocol(tmp_path: Path) -> None:
    for name in ("cert.pem", "key.pem", "other.pem"):
        (tmp_path / name).write_text("x")
    tls = {"cert": str(tmp_path / "cert.pem"), "key": str(tmp_path / "key.pem")}
    plain, secure = parsed(), parsed(server={"tls": tls})
    assert merge(plain, secure) == (plain, ("server.tls",))
    assert merge(secure, plain)[0].server == secure.server
    other = parsed(server={"tls": tls | {"cert": str(tmp_path / "other.pem")}})
    assert merge(secure, other) == (other, ())


def test_each_setting_that_holds_at_once_is_a_setting() -> None:
    assert set(Config.__struct_fields__) >= LIVE
    assert set(Config().server.__struct_fields__) >= LIVE_SERVER


def test_a_reload_says_its_faults_and_changes_nothing(caplog: pytest.LogCaptureFixture) -> None:
    used: list[Config] = []
    first = parsed()

    async def main() -> None:
        answers: list[Config | ConfigError] = [
            ConfigError([("models.m", "is wrong")]),
            parsed(models={"n": MODEL}),
            parsed(models={"bad": MODEL}),
        ]

        def read() -> Config:
            answer = answers.pop(0)
            if isinstance(answer, ConfigError):
                raise answer
            return answer

        async def use(config: Config) -> None:
            if "bad" in config.models:
                raise ConfigError([("server.tls", "cannot be used")])
            used.append(config)

        reload = Reload(first, read, use)
        assert await reload.reload() == [("models.m", "is wrong")]
        assert reload.running is first
        assert await reload.reload() == []
        assert list(reload.running.models) == ["n"]
        assert await reload.reload() == [("server.tls", "cannot be used")]
        assert list(reload.running.models) == ["n"]
        assert len(used) == 1

    asyncio.run(main())
    assert "models.m: is wrong" in caplog.text


def _reload(gateway: Gateway, text: str) -> None:
    """Reload and wait until the log says that it is done."""
    before = sum("configuration" in line for line in gateway.said)
    rewrite(gateway, text)
    gateway.process.send_signal(signal.SIGHUP)
    until(lambda: sum("configuration" in line for line in list(gateway.said)) > before)


def _status(gateway: Gateway, model: str) -> int:
    return gateway.call(CHAT, {"model": model, "messages": [{"role": "user", "content": "x"}]}).status


@pytest.mark.parametrize("workers", [1, 3])
def test_a_new_configuration_holds_in_every_worker_and_streams_go_on(workers: int) -> None:
    with served(workers) as (gateway, provider):
        base = provider.base_url("chat")
        streams = [Stream(gateway, "held").begin() for _ in range(9)]
        text = configuration(base, workers, {"added": "plain"}).replace('[models."held"]', '[models."renamed"]')
        _reload(gateway, text)
        assert [_status(gateway, "added") for _ in range(20)] == [200] * 20
        assert [_status(gateway, "held") for _ in range(20)] == [404] * 20
        for stream in streams:  # they keep the model that is no more
            assert b"[DONE]" in stream.rest()
        assert len(workers_of(gateway)) == (0 if workers == 1 else workers)


@pytest.mark.parametrize("workers", [1, 2])
def test_a_bad_file_is_refused_with_its_faults_and_the_old_one_stays(workers: int) -> None:
    with served(workers) as (gateway, provider):
        good = configuration(provider.base_url("chat"), workers)
        _reload(gateway, good + "[models.x]\ntargetz = 1\n")
        until(lambda: said(gateway, "ERROR kenari: the new configuration is not used: models.x.targetz"))
        until(lambda: said(gateway, "models.x.targets: is required"))
        assert [_status(gateway, "plain") for _ in range(8)] == [200] * 8
        _reload(gateway, good.replace(f"workers = {workers}", 'workers = 5\nlog = "text"'))
        until(lambda: said(gateway, "server.workers has changed, which needs a restart"))
        until(lambda: said(gateway, "server.log has changed, which needs a restart"))
        assert _status(gateway, "plain") == 200
        assert gateway.process.poll() is None


def test_a_worker_that_is_started_after_a_reload_has_the_new_configuration() -> None:
    with served(2) as (gateway, provider):
        _reload(gateway, configuration(provider.base_url("chat"), 2, {"added": "plain"}))
        old = workers_of(gateway)
        for worker in old:
            worker.kill()
        until(lambda: len({one.pid for one in workers_of(gateway)} - {one.pid for one in old}) == 2)
        assert [_status(gateway, "added") for _ in range(10)] == [200] * 10


@pytest.mark.parametrize("workers", [1, 3])
def test_reload_under_load_loses_no_request(workers: int) -> None:
    with scripted_provider(PLAYS) as provider:
        base = provider.base_url("chat")
        with running_gateway(configuration(base, workers)) as gateway:
            stop, statuses, broken = threading.Event(), list[int](), list[str]()

            def load(model: str, stream: bool) -> None:
                connection = http.client.HTTPConnection(*gateway.address, timeout=30)
                while not stop.is_set():
                    try:
                        if stream:
                            one = Stream(gateway, model)
                            statuses.append(one.answer.status)
                            if b"[DONE]" not in one.rest():
                                broken.append("cut")
                        else:
                            statuses.append(_status(gateway, model))
                    except (OSError, http.client.HTTPException) as error:
                        broken.append(repr(error))
                connection.close()

            threads = [
                threading.Thread(target=load, args=(model, stream))
                for model, stream in (("plain", False), ("plain", True), ("slow", True), ("slow", True))
                for _ in range(2)
            ]
            for thread in threads:
                thread.start()
            for turn in range(6):
                _reload(gateway, configuration(base, workers, {f"turn{turn}": "plain"}, keepalive=f"{turn + 1}s"))
                time.sleep(0.1)
            stop.set()
            for thread in threads:
                thread.join(30)
            assert broken == []
            assert len(statuses) > 40
            assert set(statuses) == {200}
            assert _status(gateway, "turn5") == 200


@pytest.mark.parametrize("workers", [1, 2])
def test_a_renewed_certificate_is_taken(workers: int, tmp_path: Path) -> None:
    """No restart once a quarter: the files are read again."""
    authority = trustme.CA()
    cert, key = tmp_path / "cert.pem", tmp_path / "key.pem"

    def renew() -> bytes:
        made = authority.issue_cert("127.0.0.1")
        made.private_key_pem.write_to_path(str(key))
        made.cert_chain_pems[0].write_to_path(str(cert))
        return made.cert_chain_pems[0].bytes()

    renew()
    with scripted_provider(PLAYS) as provider:
        text = configuration(provider.base_url("chat"), workers)
        text = text.replace("[server]\n", f'[server]\ntls = {{ cert = "{cert}", key = "{key}" }}\n')
        with running_gateway(text) as gateway:
            host, port = gateway.url.removeprefix("https://").split(":")
            renewed = renew()
            _reload(gateway, text)
            for _ in range(6):
                shown = subprocess.run(
                    ["openssl", "s_client", "-connect", f"{host}:{port}"],
                    input="",
                    capture_output=True,
                    text=True,
                    timeout=20,
                    check=False,
                ).stdout
                assert renewed.decode().replace("\r", "").strip() in shown
            cert.write_text("no certificate")
            _reload(gateway, text)
            until(lambda: said(gateway, "not used: server.tls: cannot be used"))


def test_when_its_terminal_goes_kenari_ends(tmp_path: Path) -> None:
    """SIGHUP reloads a service; a program in a terminal that was closed must not stay behind."""
    ours, theirs = pty.openpty()
    file = tmp_path / "kenari.toml"
    file.write_text('[server]\nlisten = "127.0.0.1:0"\nadmin_listen = "127.0.0.1:0"\n')
    process = subprocess.Popen(
        [sys.executable, "-m", "kenari.cli", "serve", "--config", str(file)],
        cwd=tmp_path,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=theirs,
    )
    os.close(theirs)
    try:
        words = b""
        while b"kenari is ready" not in words:
            words += os.read(ours, 4096)
        process.send_signal(signal.SIGHUP)
        while b"was read again" not in words:
            words += os.read(ours, 4096)
        os.close(ours)
        process.send_signal(signal.SIGHUP)
        assert process.wait(10) == 0
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()
