"""Routes, own keys and the other endpoints through a whole kenari process: settings, store and doors put together."""

import json
from pathlib import Path

from gateway import running_gateway
from upstream import Play, scripted_provider

SECRET = "sk-own-key-that-nobody-may-see-77"


def test_a_whole_process_with_routes_and_own_keys(tmp_path: Path) -> None:
    """The second member answers with who it is; a caller's own key is stored, used and forgotten, and lies nowhere."""
    plays = {"good": Play(text=("hello",)), "bad": Play(status=503), "theirs": Play(text=("yours",))}
    with scripted_provider(plays) as provider:
        config = f"""
[server]
show_target = "operator"
listen = "127.0.0.1:0"
admin_listen = "127.0.0.1:0"
[store]
url = "sqlite:///{tmp_path}/kenari.db"
[providers.p]
dialect = "chat"
base_url = "{provider.base_url("chat")}"
api_key = "sk-operator"
[models.first]
targets = ["p/bad"]
[models.second]
targets = ["p/good"]
[models.emb]
kind = "embedding"
targets = ["p/e"]
[routes.both]
models = ["first", "second"]
[byok]
providers = ["p"]
"""
        with running_gateway(config) as gateway:
            body = {"model": "both", "messages": [{"role": "user", "content": "hi"}]}
            got = gateway.call("/v1/chat/completions", body)
            assert got.json()["choices"][0]["message"]["content"] == "hello"
            assert (got.headers["x-kenari-target"], got.headers["x-kenari-attempts"]) == ("p/good", "2")
            assert gateway.line_of(got.headers["x-request-id"])["attempts"] == 2
            assert gateway.call("/v1/embeddings", {"model": "both", "input": "x"}).status == 400
            assert gateway.call("/v1/embeddings", {"model": "emb", "input": "x"}).status == 502
            put = gateway.call("/v1/byok/p", {"key": SECRET}, method="PUT")
            assert put.json()["hint"] == SECRET[-4:]
            own = gateway.call("/v1/chat/completions", body | {"model": "byok/p/theirs"})
            assert own.json()["choices"][0]["message"]["content"] == "yours"
            assert provider.last().headers["authorization"] == f"Bearer {SECRET}"
            assert gateway.call("/v1/byok", method="GET").json()["data"][0]["provider"] == "p"
            for file in tmp_path.iterdir():
                assert SECRET.encode() not in file.read_bytes()
            assert gateway.call("/v1/byok/p", method="DELETE").status == 200
            assert gateway.call("/v1/chat/completions", body | {"model": "byok/p/theirs"}).status == 400
            assert SECRET not in json.dumps(gateway.lines) + "".join(gateway.said)
