"""What the commands of a client's machine share: the server's address, key and model, and one request to it.

These commands need no kenari.toml: they run where the client is, not where kenari is.
"""

import argparse
import http.client
import os
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import msgspec

from kenari.connect.client import Server
from kenari.wire import jsonx

if TYPE_CHECKING:
    from kenari.commands.base import Commands

DEFAULT_URL = "http://127.0.0.1:8080"
PATIENCE = 120.0
"""Seconds that one request may take: a model may have to be loaded first."""
SHORT_PATIENCE = 10.0
"""Seconds for a request that asks no model."""


class ClientError(Exception):
    """A command of the client's machine cannot go on. The message says what to do."""


def add_client_command(
    commands: "Commands", name: str, help: str, run: Callable[[argparse.Namespace], int]
) -> argparse.ArgumentParser:
    """A command with the server's address, key and model as options. It is run without a configuration."""
    words = commands.add_parser(name, help=help)
    words.add_argument("--url", default=os.environ.get("KENARI_URL", DEFAULT_URL), help=f"default: {DEFAULT_URL}")
    words.add_argument("--key", default=os.environ.get("KENARI_API_KEY", ""), help="default: KENARI_API_KEY")
    words.add_argument("--model", default="", help="default: the first one that the server lists")
    words.set_defaults(start=run)
    return words


def server_of(options: argparse.Namespace) -> Server:
    """What the options name; the model is asked for when they name none. Raises ClientError."""
    url: str = options.url.rstrip("/").removesuffix("/v1")
    if not url.startswith(("http://", "https://")):
        raise ClientError(f"{options.url} is no address. give one like {DEFAULT_URL}")
    if not options.key:
        raise ClientError("no key is given. set KENARI_API_KEY, or use --key")
    return Server(url, options.key, options.model or _first_model(url, options.key))


def measured(server: Server) -> Server:
    """The same with the window and the longest answer that the server knows of the model: a client that believes in a
    larger window asks for too much before it makes its conversation shorter."""
    url = f"{server.url}/v1/models/{quote(server.model)}"
    try:
        status, body = ask(url, {"authorization": f"Bearer {server.key}"}, patience=SHORT_PATIENCE)
        known: dict[str, Any] = jsonx.value(body) if status == 200 else {}
        window, cap = known.get("context_window"), known.get("max_output_tokens")
    except (ClientError, jsonx.Malformed, AttributeError):  # what is printed is of use without a server too
        return server
    return msgspec.structs.replace(
        server,
        window=window if isinstance(window, int) else server.window,
        cap=min(cap, server.cap) if isinstance(cap, int) else server.cap,
    )


def ask(
    url: str, headers: Mapping[str, str], body: bytes | None = None, patience: float = PATIENCE
) -> tuple[int, bytes]:
    """One request: its status and the whole body. Raises ClientError when nobody answers."""
    request = urllib.request.Request(url, data=body, headers=dict(headers))
    try:
        with urllib.request.urlopen(request, timeout=patience) as answer:
            return answer.status, answer.read()
    except urllib.error.HTTPError as error:
        return error.code, error.read()
    except (OSError, http.client.HTTPException) as error:
        reason = getattr(error, "reason", error)
        raise ClientError(f"{url} does not answer: {reason}. is kenari running there? (--url)") from None


def _first_model(url: str, key: str) -> str:
    status, body = ask(url + "/v1/models", {"authorization": f"Bearer {key}"})
    try:
        if status == 200:
            return str(jsonx.value(body)["data"][0]["id"])
        reason = jsonx.value(body)["error"]["message"]
    except (jsonx.Malformed, KeyError, IndexError, TypeError):
        reason = "it lists no models"
    raise ClientError(f"{url} answers {status}: {reason}. name a model with --model, or mend the key")
