"""A client's data file: what stands in its settings, its environment and its code, with places for server, key, model."""

import tomllib
from importlib import resources
from typing import Any, Literal, TypeAlias, cast

import msgspec

Speaks: TypeAlias = Literal["chat", "messages", "responses"]
FileKind: TypeAlias = Literal["toml", "json", "yaml"]


class File(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The client's own configuration file. The paths hold `{home}` or another of `place.py`'s places."""

    kind: FileKind
    linux: str
    macos: str
    windows: str
    folder_variable: str = ""
    """An environment variable that names the file's folder, when the client has one."""
    secret: bool = False
    """The file holds the key itself, so only its owner may read it."""


class Start(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How `kenari run` starts the client: nothing of the user's files is changed."""

    program: str
    arguments: tuple[str, ...] = ()
    environment: dict[str, str] = {}


class Client(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One client. In all texts `{url}`, `{v1}`, `{key}` and `{model}` stand for what `fill` is given; a setting that is
    `"{window}"` or `"{cap}"` alone becomes that number.

    `settings` is merged into `file`, or `block` is put into it; `environment` is what its shell needs; `code` is an
    example for a library; `use` is what to type then.
    """

    name: str
    title: str
    speaks: Speaks
    key_header: Literal["authorization", "x-api-key"] = "authorization"
    streams: bool = False
    """It asks for streams, so `--check` does too: what cuts or holds back a stream on the way is seen."""
    file: File | None = None
    settings: dict[str, Any] = {}
    block: str = ""
    environment: dict[str, str] = {}
    language: str = ""
    code: str = ""
    install: str = ""
    use: str = ""
    note: str = ""
    run: Start | None = None


class Server(msgspec.Struct, frozen=True):
    """What a client is to use: the address without a path, a key and a model's name; the tokens of the model's window, and
    of the longest answer to ask for. The two are what clients work well with where the server does not know better."""

    url: str
    key: str
    model: str
    window: int = 131072
    cap: int = 32000


def names() -> list[str]:
    """The names of all clients."""
    files = resources.files("kenari.connect").joinpath("clients").iterdir()
    return sorted(file.name.removesuffix(".toml") for file in files if file.name.endswith(".toml"))


def load(name: str) -> Client:
    """A client's data. Raises KeyError for a name that is not there."""
    if name not in names():
        raise KeyError(name)
    text = resources.files("kenari.connect").joinpath("clients", f"{name}.toml").read_text(encoding="utf-8")
    return msgspec.convert(tomllib.loads(text), Client)


def fill(client: Client, server: Server) -> Client:
    """The client's data with the server, the key and the model in their places."""
    return msgspec.convert(_filled(msgspec.to_builtins(client), server), Client)


def _filled(value: Any, server: Server) -> Any:
    if isinstance(value, str):
        if value in ("{window}", "{cap}"):
            return server.window if value == "{window}" else server.cap
        url = server.url.rstrip("/")
        filled = value.replace("{url}", url).replace("{v1}", url + "/v1")
        return filled.replace("{key}", server.key).replace("{model}", server.model)
    if isinstance(value, dict):
        members = cast("dict[str, Any]", value)
        return {_filled(name, server): _filled(inner, server) for name, inner in members.items()}
    if isinstance(value, (list, tuple)):
        return [_filled(inner, server) for inner in cast("list[Any]", value)]
    return value
