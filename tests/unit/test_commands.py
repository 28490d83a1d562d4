"""The commands that work through the management API: end to end against a server that runs, and what they refuse."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest
from gateway import KEY, config_text

from kenari.cli import main
from kenari.commands.management import UnixConnection, fields, table
from kenari.keys.secrets import well_formed

START_SECONDS = 60.0
PROVIDER_KEY = "sk-a-secret-of-the-provider"
PROVIDERS = {"demo": {"dialect": "chat", "base_url": "scripted:", "api_key": PROVIDER_KEY}}
PRICE = {"input": "1", "output": "2", "cache_read": "0.1", "cache_write": "1.25"}
MODELS = {"m": {"targets": ["demo/scripted"], "price": PRICE, "max_output_tokens": 4096}}


class Running:
    """`kenari serve` in a folder, with its admin port on a Unix socket there."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        server = {"listen": f"unix:{folder}/public.sock", "admin_listen": f"unix:{folder}/admin.sock"}
        (folder / "kenari.toml").write_text(
            config_text(PROVIDERS, MODELS, **server).replace(
                'listen = "127.0.0.1:0"\nadmin_listen = "127.0.0.1:0"\n', ""
            )
        )
        self.environment = {name: value for name, value in os.environ.items() if not name.startswith("KENARI_")}
        self.log = (folder / "log").open("wb")
        self.process = subprocess.Popen(
            [sys.executable, "-m", "kenari.cli", "serve"],
            cwd=folder,
            env=self.environment | {"KENARI_BOOTSTRAP_KEY": KEY},
            stdin=subprocess.DEVNULL,
            stdout=self.log,
            stderr=self.log,
        )
        end = time.monotonic() + START_SECONDS
        while not (folder / "admin.sock").exists():
            assert self.process.poll() is None, (folder / "log").read_text()
            assert time.monotonic() < end, (folder / "log").read_text()
            time.sleep(0.05)

    def run(self, *words: str) -> subprocess.CompletedProcess[str]:
        """A command as a process, as a person would run it."""
        command = [sys.executable, "-m", "kenari.cli", *words]
        return subprocess.run(
            command, cwd=self.folder, env=self.environment, capture_output=True, text=True, timeout=60, check=False
        )

    def stop(self) -> None:
        """End it."""
        self.process.terminate()
        try:
            self.process.wait(60)  # a busy machine takes its time
        finally:
            if self.process.poll() is None:
                self.process.kill()
                self.process.wait()
            self.log.close()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Generator[Running]:
    """One server for all of these tests."""
    one = Running(tmp_path_factory.mktemp("server"))
    yield one
    one.stop()


@pytest.fixture
def call(server: Running, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Any:
    """Runs a command in this process; what it printed."""
    monkeypatch.chdir(server.folder)
    for name in ("KENARI_BOOTSTRAP_KEY", "KENARI_ADMIN_TOKEN", "KENARI_SECRET"):
        monkeypatch.delenv(name, raising=False)

    def run(*words: str, status: int = 0) -> Any:
        assert main(words) == status
        out, err = capsys.readouterr()
        if status:
            assert out == ""
            return err
        return json.loads(out) if "--json" in words else out

    return run


def test_a_person_manages_accounts_and_keys_in_a_shell(server: Running) -> None:
    made = server.run("accounts", "create", "team", "--credit", "25", "--json")
    assert made.returncode == 0, made.stderr
    account = json.loads(made.stdout)["id"]
    key = server.run("keys", "create", account, "laptop")
    assert key.returncode == 0, key.stderr
    secret = key.stdout.split("secret ")[1].split()[0]
    assert well_formed(secret)
    listed = server.run("accounts", "list")
    assert account in listed.stdout
    assert "25.00" in listed.stdout
    token = server.run("admin", "token").stdout.strip()
    assert token == (server.folder / "kenari.admin").read_text().strip()
    assert token.startswith("ka-")
    for hidden in (secret, token):
        assert hidden not in (server.folder / "log").read_text()
    assert KEY not in (server.folder / "log").read_text()


def ask(server: Running, key: str, body: dict[str, Any], query: str = "") -> tuple[int, str, dict[str, Any]]:
    """A request on the public port: status, request id, answer."""
    connection = UnixConnection(str(server.folder / "public.sock"))
    headers = {"authorization": f"Bearer {key}", "content-type": "application/json"}
    connection.request("POST", f"/v1/chat/completions{query}", json.dumps(body), headers)
    answer = connection.getresponse()
    content = json.loads(answer.read())
    connection.close()
    return answer.status, answer.headers["x-request-id"], content


def scrape(server: Running) -> str:
    """The exposition, which a loopback port gives without a token (F11)."""
    connection = UnixConnection(str(server.folder / "admin.sock"))
    connection.request("GET", "/metrics")
    answer = connection.getresponse()
    assert answer.status == 200
    text = answer.read().decode()
    connection.close()
    return text


def test_from_a_key_to_the_bill_and_no_secret_on_the_way(call: Any, server: Running) -> None:
    """A made key opens at once, its request is billed, summed up and counted, a revoked one is refused at once. No
    secret is in the log, the metrics, an error or a file, but those that hold one secret each."""
    account = call("accounts", "create", "payer", "--credit", "1", "--json")["id"]
    made = call("keys", "create", account, "k", "--json")
    key, secret = made["id"], made["secret"]
    words = {"model": "m", "messages": [{"role": "user", "content": "Name three colours."}]}
    status, request, answer = ask(server, secret, words, query=f"?key={secret}")
    assert status == 200, answer
    usage = answer["usage"]
    charge = usage["prompt_tokens"] * 1000 + usage["completion_tokens"] * 2000
    sums = call("usage", "--by", "model,key", "--key", key, "--json")["data"]
    assert [(one["model"], one["key"], one["requests"]) for one in sums] == [("m", key, 1)]
    assert sums[0]["tokens"]["output"] == usage["completion_tokens"]
    assert float(sums[0]["charge"]) == pytest.approx(charge / 10**9)
    assert float(call("accounts", "show", account, "--json")["balance"]) == pytest.approx(1 - charge / 10**9)
    text = scrape(server)
    assert 'kenari_requests_total{format="chat",model="m",reason="done",status="200"} 1.0' in text
    assert "kenari_store_up 1.0" in text
    assert "kenari_spool_bytes 0.0" in text
    rotated = call("keys", "rotate", key, "--json")["secret"]
    assert ask(server, rotated, words)[0] == 200
    call("keys", "revoke", key)
    status, _, refused = ask(server, secret, words)
    assert (status, refused["error"]["code"]) == (401, "invalid_api_key")
    text = scrape(server)
    assert 'kenari_errors_total{code="invalid_api_key"} 1.0' in text
    token = (server.folder / "kenari.admin").read_text().strip()
    root = (server.folder / "kenari.secret").read_text().strip()
    log = (server.folder / "log").read_text()
    assert request in log
    files = {path.name: path.read_bytes() for path in server.folder.iterdir() if path.is_file()}
    assert key.encode() in b"".join(files.values())
    for hidden in (secret, rotated, token, root, PROVIDER_KEY, KEY):
        assert hidden not in log
        assert hidden not in text
        assert hidden not in str(refused)
        holders = {name for name, content in files.items() if hidden.encode() in content}
        assert holders <= {"kenari.admin", "kenari.secret", "kenari.toml"}, holders


def test_accounts(call: Any) -> None:
    one = call("accounts", "create", "crew", "--plan", "pro", "--budget", "5/week", "--rpm", "3", "--json")
    assert (one["plan"], one["budget"], one["limits"]["rpm"]) == ("pro", {"amount": "5.00", "window": "week"}, 3)
    account = one["id"]
    assert call("accounts", "credit", account, "12.5", "--note", "first", "--json")["balance"] == "12.50"
    assert call("accounts", "credit", account, "-2.5", "--json")["balance"] == "10.00"
    shown = call("accounts", "show", account)
    assert "5.00/week" in shown
    assert "rpm=3" in shown
    assert call("accounts", "close", account, "--json")["closed_at"] is not None
    assert "closed" in call("keys", "create", account, "k", status=1)
    assert account in [entry["id"] for entry in call("accounts", "list", "--json")["data"]]


def test_keys(call: Any) -> None:
    account = call("accounts", "create", "crew", "--json")["id"]
    asked = ("--model", "m", "--model", "gpt-*", "--endpoint", "messages", "--network", "10.0.0.0/8")
    limits = ("--expires-at", "2030-01-01T00:00:00Z", "--budget", "5/day", "--tpm", "1000", "--concurrent", "2")
    made = call("keys", "create", account, "laptop", *asked, *limits, "--json")
    assert (made["models"], made["endpoints"], made["networks"]) == (["m", "gpt-*"], ["messages"], ["10.0.0.0/8"])
    assert made["expires_at"] == "2030-01-01T00:00:00.000Z"
    assert made["limits"] == {"rpm": None, "tpm": 1000, "concurrent": 2}
    key = made["id"]
    assert "secret" not in call("keys", "show", key)
    rotated = call("keys", "rotate", key, "--grace", "10m")
    assert "not shown again" in rotated
    assert made["secret"] not in rotated
    assert call("keys", "revoke", key, "--json")["revoked_at"] is not None
    assert "revoked" in call("keys", "rotate", key, status=1)
    assert [one["id"] for one in call("keys", "list", "--account", account, "--json")["data"]] == [key]
    assert key in call("keys", "list", "--account", account)


def test_usage(call: Any) -> None:
    text = call("usage", "--by", "account,model", "--from", "2026-11-01")
    assert text.splitlines()[0].endswith("CHARGE USD")
    assert call("usage", "--account", "acc_none", "--json") == {"data": [], "currency": "USD"}


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("accounts", "show", "acc_none"), "no account"),
        (("accounts", "show", "../keys"), "nothing at"),
        (("accounts", "create", "x", "--credit", "much"), "credit"),
        (("accounts", "create", "x", "--budget", "5/year"), "budget.window"),
        (("keys", "create", "acc_none", "k"), "no account"),
        (("keys", "create", "acc_none", "k", "--network", "x"), "networks[0]"),
        (("usage", "--by", "hour"), "by"),
    ],
)
def test_the_servers_words_are_passed_on(call: Any, words: tuple[str, ...], said: str) -> None:
    err = call(*words, status=1)
    assert err.startswith("kenari: ")
    assert said in err
    assert err.count("\n") == 1


def test_a_wrong_token_is_told_and_audited(call: Any, monkeypatch: pytest.MonkeyPatch, server: Running) -> None:
    monkeypatch.setenv("KENARI_ADMIN_TOKEN", "not-this-one")
    assert "management token is not valid" in call("accounts", "list", status=1)
    monkeypatch.setenv("KENARI_ADMIN_TOKEN", KEY)
    assert "management token is not valid" in call("accounts", "list", status=1)
    assert "wrong management tokens came from local" in (server.folder / "log").read_text()
    assert "not-this-one" not in (server.folder / "log").read_text()


def test_without_a_server_the_way_to_one_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("KENARI_ADMIN_TOKEN", raising=False)
    config = tmp_path / "kenari.toml"
    config.write_text(f'[server]\nadmin_listen = "unix:{tmp_path}/none.sock"\n')
    assert main(["accounts", "list"]) == 1
    assert "KENARI_ADMIN_TOKEN" in capsys.readouterr().err  # no token was made yet
    assert main(["admin", "token"]) == 0
    token = capsys.readouterr().out.strip()
    assert main(["admin", "token"]) == 0
    assert capsys.readouterr().out.strip() == token
    assert (tmp_path / "kenari.admin").stat().st_mode & 0o777 == 0o600
    assert main(["accounts", "list"]) == 1
    assert "kenari serve" in capsys.readouterr().err
    config.write_text('[server]\nadmin_listen = ""\n')
    assert main(["accounts", "list"]) == 1
    assert "is off" in capsys.readouterr().err
    (tmp_path / "kenari.admin").write_text("")
    config.write_text('[server]\nadmin_listen = "127.0.0.1:1"\n')
    assert main(["accounts", "list"]) == 1
    assert "empty" in capsys.readouterr().err


def test_a_port_that_is_not_kenaris_is_told(
    server: Running, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The public port instead of the admin one: its errors are passed on, and it sees no management token twice."""
    config = tmp_path / "kenari.toml"
    config.write_text(
        f'[server]\nadmin_listen = "unix:{server.folder}/public.sock"\n[store]\nurl = "sqlite:///{server.folder}/kenari.db"\n'
    )
    assert main(["accounts", "list", "--config", str(config)]) == 1
    assert "nothing at /admin/v1/accounts" in capsys.readouterr().err


def test_tables_line_up() -> None:
    text = table(("id", "balance"), [["a", "1.50"], ["bbb", "-20.00"], ["c", None]])
    assert text.splitlines() == ["ID   BALANCE", "a       1.50", "bbb   -20.00", "c          -"]
    assert table(("id",), []) == "ID"
    assert fields({"id": "a", "list": ["x", "y"], "none": {}}, ("id", "list", "none")).splitlines() == [
        "id    a",
        "list  x,y",
        "none  -",
    ]
    assert "\x1b" not in table(("name",), [["\x1b[31mred"]])


def test_a3_the_public_port_knows_no_management_and_the_admin_port_no_models(server: Running) -> None:
    token = (server.folder / "kenari.admin").read_text().strip()
    ports = {"public.sock": ("/admin/v1/accounts", "/metrics"), "admin.sock": ("/v1/models", "/v1/chat/completions")}
    for name, paths in ports.items():
        for path in paths:
            connection = UnixConnection(str(server.folder / name))
            connection.request("GET", path, headers={"authorization": f"Bearer {token}"})
            assert connection.getresponse().status == 404
            connection.close()


def test_a_bill_is_read_line_by_line(call: Any, server: Running) -> None:
    account = call("accounts", "create", "reader", "--credit", "1", "--json")["id"]
    key = call("keys", "create", account, "k", "--json")
    body = {"model": "m", "messages": [{"role": "user", "content": "fast"}]}
    status, request, _ = ask(server, key["secret"], body)
    assert status == 200
    (line,) = call("requests", "list", "--account", account, "--json")["data"]
    assert line["id"] == request
    shown = call("requests", "list", "--key", key["id"])
    assert shown.splitlines()[0].split()[:3] == ["TIME", "ID", "ACCOUNT"]
    assert line["charge"] in shown
    assert len(call("requests", "list", "--limit", "1").splitlines()) == 2
    one = call("requests", "show", request)
    assert f"charge     {line['charge']}" in one
    assert "output=" in one
    assert "there is no" in call("requests", "show", "0000", status=1)


def test_what_was_agreed_is_changed_and_the_rest_stays(call: Any) -> None:
    account = call("accounts", "create", "a", "--budget", "5/day", "--rpm", "7", "--tpm", "9", "--json")["id"]
    changed = call("accounts", "change", account, "--budget", "25/month", "--rpm", "70", "--plan", "pro", "--json")
    assert (changed["name"], changed["plan"]) == ("a", "pro")
    assert changed["budget"] == {"amount": "25.00", "window": "month"}
    assert changed["limits"] == {"rpm": 70, "tpm": 9, "concurrent": None}
    assert call("accounts", "change", account, "--name", "b", "--json")["limits"] == changed["limits"]
    call("accounts", "close", account)
    opened = call("accounts", "change", account, "--open", "--no-budget", "--no-limits", "--json")
    assert (opened["closed_at"], opened["budget"]) == (None, None)
    assert opened["limits"] == {"rpm": None, "tpm": None, "concurrent": None}

    key = call("keys", "create", account, "k", "--model", "m", "--concurrent", "2", "--budget", "1", "--json")["id"]
    changed = call(
        "keys", "change", key, "--name", "n", "--network", "10.0.0.0/8", "--no-limits", "--rpm", "3", "--json"
    )
    assert (changed["name"], changed["models"], changed["networks"]) == ("n", ["m"], ["10.0.0.0/8"])
    assert changed["budget"] == {"amount": "1.00", "window": "total"}
    assert changed["limits"] == {"rpm": 3, "tpm": None, "concurrent": None}
    changed = call(
        "keys", "change", key, "--model", "*", "--no-budget", "--expires-at", "2100-01-01T00:00:00Z", "--json"
    )
    assert (changed["models"], changed["budget"]) == (["*"], None)
    assert changed["expires_at"].startswith("2100-01-01")
    assert "there is no key" in call("keys", "change", "key_none", "--name", "x", status=1)
