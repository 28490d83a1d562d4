"""What `kenari serve` says when it is ready: the key, once, and curl lines that can be pasted. Pure."""

import shlex
from collections.abc import Sequence
from typing import Any

from kenari.wire import jsonx

KEY_VARIABLE = "$KENARI_API_KEY"
"""Stands in the curl lines when the key is not to be shown."""

_QUESTION = "Name three colours."


def welcome(base_url: str, key: str | None, models: Sequence[str], held: str = "") -> str:
    """The text, with a line end. `base_url` has no `/v1` (`http://127.0.0.1:8080`, or `unix:/path`); `key` is None
    when it has been shown before, and `held` is then where a shell finds it; the curl lines ask the first of `models`."""
    lines = [f"kenari is ready on {base_url}", ""]
    if key is not None:
        lines += [f"  key      {key}", "           (shown this once; clients send it as a Bearer token or x-api-key)"]
    elif held:
        lines += [f"  key      export {KEY_VARIABLE[1:]}={held}"]
    lines += [f"  {'models' if at == 0 else '':8} {model}" for at, model in enumerate(models)]
    if models:
        lines += ["", "Chat completions:", _curl(base_url, key, *_chat(models[0]))]
        lines += ["", "Messages:", _curl(base_url, key, *_messages(models[0]))]
        lines += ["", "Responses:", _curl(base_url, key, *_responses(models[0]))]
    return "\n".join(lines) + "\n"


def _chat(model: str) -> tuple[str, dict[str, Any]]:
    return "/v1/chat/completions", {"model": model, "stream": True, "messages": [_turn()]}


def _messages(model: str) -> tuple[str, dict[str, Any]]:
    return "/v1/messages", {"model": model, "stream": True, "max_tokens": 300, "messages": [_turn()]}


def _responses(model: str) -> tuple[str, dict[str, Any]]:
    return "/v1/responses", {"model": model, "stream": True, "input": _QUESTION}


def _turn() -> dict[str, str]:
    return {"role": "user", "content": _QUESTION}


def _curl(base_url: str, key: str | None, path: str, body: dict[str, Any]) -> str:
    """One line for each part, joined by backslashes: it is read easily and pasted whole."""
    if base_url.startswith("unix:"):
        where = f"--unix-socket {shlex.quote(base_url[5:])} http://localhost{path}"
    else:
        where = ("-g " if "[" in base_url else "") + shlex.quote(base_url + path)
    token = f'"Authorization: Bearer {KEY_VARIABLE}"' if key is None else shlex.quote(f"Authorization: Bearer {key}")
    return "\n".join(
        (
            f"  curl -N {where} \\",
            f"    -H {token} \\",
            "    -H 'Content-Type: application/json' \\",
            f"    -d {shlex.quote(jsonx.encode(body).decode())}",
        )
    )
