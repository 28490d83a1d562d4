"""What `kenari serve` says when it cannot start: the setting, the address, what to do."""

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from kenari.cli import main


def ended(folder: Path, *lines: str, env: dict[str, str] | None = None) -> "subprocess.CompletedProcess[str]":
    """`kenari serve` with these settings of the server, which ends by itself."""
    file = folder / "kenari.toml"
    file.write_text("\n".join(("[server]", *lines)) + "\n")
    return subprocess.run(
        [sys.executable, "-m", "kenari.cli", "serve", "--config", str(file)],
        env=os.environ | (env or {}),
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("setting", ["listen", "admin_listen"])
def test_a_port_that_is_taken_is_named(tmp_path: Path, setting: str, workers: int) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        other = {"listen": "admin_listen", "admin_listen": "listen"}[setting]
        done = ended(tmp_path, f'{setting} = "{address}"', f'{other} = "127.0.0.1:0"', f"workers = {workers}")
    assert done.returncode == 1
    assert f"kenari cannot start: [server] {setting} {address}: it is in use. end the program" in done.stderr


@pytest.mark.parametrize("workers", [1, 2])
def test_an_address_that_is_not_here_is_named(tmp_path: Path, workers: int) -> None:
    done = ended(tmp_path, 'listen = "192.0.2.1:8080"', 'admin_listen = "127.0.0.1:0"', f"workers = {workers}")
    assert done.returncode == 1
    assert "kenari cannot start: [server] listen 192.0.2.1:8080: this machine has no such address" in done.stderr


@pytest.mark.parametrize("command", ["check", "serve"])
@pytest.mark.parametrize("workers", [1, 2])
def test_a_certificate_that_is_none_is_a_fault(
    tmp_path: Path, command: str, workers: int, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "junk.pem").write_text("junk\n")
    file = tmp_path / "kenari.toml"
    pem = tmp_path / "junk.pem"
    file.write_text(f'[server]\nworkers = {workers}\ntls = {{ cert = "{pem}", key = "{pem}" }}\n')
    assert main([command, "--config", str(file)]) == 1
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("server.tls: cannot be used: ")
    assert "both in PEM" in err
