"""The catalogue: M1 in both shapes, names that are not there, and models of other kinds (S173)."""

import json
from typing import Any

import pytest

from kenari.catalog.listing import list_body, model_body, sees
from kenari.catalog.models import ENDPOINTS, Catalog, Kind, Model, Price, Route, TargetRef
from kenari.core.caller import Caller, Scope
from kenari.core.errors import KenariError

TARGET = (TargetRef("groq", "openai/gpt-oss-120b"),)
MODELS = {
    "vendor/model:free": Model(
        id="vendor/model:free",
        targets=TARGET,
        reasoning=True,
        vision=True,
        context_window=131072,
        max_output_tokens=4096,
        price=Price("0.15", "0.6", "0.01", "0.2"),
        aliases=("short",),
    ),
    "drawing": Model(id="drawing", targets=TARGET, kind="image"),
}
CATALOG = Catalog(MODELS, {"smart": Route(("vendor/model:free",))})


def everything(_: Model) -> bool:
    return True


def listed(anthropic: bool) -> dict[str, Any]:
    return json.loads(list_body(CATALOG, anthropic, everything))


def test_m1_the_openai_shape_with_more() -> None:
    body = listed(False)
    assert body["object"] == "list"
    assert [entry["id"] for entry in body["data"]] == ["vendor/model:free", "drawing", "smart"]
    entry = body["data"][0]
    assert (entry["object"], entry["owned_by"], type(entry["created"])) == ("model", "kenari", int)
    assert (entry["kind"], entry["context_window"], entry["max_output_tokens"]) == ("chat", 131072, 4096)
    assert entry["pricing"] == {"input": "0.15", "output": "0.6", "cache_read": "0.01", "cache_write": "0.2"}
    assert entry["input_modalities"] == ["text", "image"]
    assert entry["efforts"] == ["none", "minimal", "low", "medium", "high", "xhigh", "max"]
    assert entry["access"] == "public"


def test_m1_the_anthropic_shape() -> None:
    body = listed(True)
    assert (body["first_id"], body["last_id"], body["has_more"]) == ("vendor/model:free", "smart", False)
    entry = body["data"][0]
    assert (entry["type"], entry["id"], entry["display_name"]) == ("model", "vendor/model:free", "vendor/model:free")
    assert entry["created_at"].endswith("Z")
    assert "object" not in entry


@pytest.mark.parametrize("anthropic", [False, True])
def test_m1_one_model_by_an_id_with_slash_and_colon_by_alias_and_by_route(anthropic: bool) -> None:
    entry = json.loads(model_body(CATALOG, "vendor/model:free", anthropic, everything))
    assert entry == listed(anthropic)["data"][0]
    assert json.loads(model_body(CATALOG, "short", anthropic, everything))["id"] == "vendor/model:free"
    assert json.loads(model_body(CATALOG, "smart", anthropic, everything))["id"] == "smart"


def test_an_empty_catalogue_is_a_list_too() -> None:
    assert json.loads(list_body(Catalog({}, {}), True, everything))["first_id"] is None


def test_names_lead_to_their_model_s109() -> None:
    for name in ("vendor/model:free", "short", "smart"):
        assert CATALOG.entry_of(name, "chat").model.targets == TARGET


@pytest.mark.parametrize("name", ["nothing", "", "vendor", "a\r\nb: c", "\ud800", "x" * 1000])
def test_a_name_that_is_not_there_is_404_model_not_found(name: str) -> None:
    for body in (False, True):
        with pytest.raises(KenariError) as caught:
            _ = model_body(CATALOG, name, False, everything) if body else CATALOG.entry_of(name, "chat").model
        error = caught.value
        assert (error.code, error.status, error.param) == ("model_not_found", 404, "model")
        assert error.message.isprintable()
        assert len(error.message) < 200


@pytest.mark.parametrize("kind", [kind for kind in ENDPOINTS if kind != "chat"])
def test_s173_a_model_of_another_kind_is_400_and_names_its_endpoint(kind: Kind) -> None:
    with pytest.raises(KenariError) as caught:
        Catalog({"m": Model(id="m", targets=TARGET, kind=kind)}, {}).entry_of("m", "chat")
    assert (caught.value.code, caught.value.status, caught.value.param) == ("bad_request", 400, "model")
    assert ENDPOINTS[kind] in caught.value.message


def test_a_target_that_two_members_of_a_route_share_is_tried_once_m2() -> None:
    two = TargetRef("other", "b")
    models = {"a": Model(id="a", targets=TARGET), "b": Model(id="b", targets=(two, *TARGET))}
    assert Catalog(models, {"r": Route(("a", "b", "a"))}).entry_of("r", "chat").model.targets == (*TARGET, two)


def test_a_key_sees_what_its_scope_allows_and_only_that_m1() -> None:
    """By id, by alias, by a pattern; the rest is 404 like a name that is not there."""
    for models, ids in (
        ((), ["vendor/model:free", "drawing", "smart"]),
        (("vendor/*",), ["vendor/model:free"]),
        (("short", "smart"), ["vendor/model:free", "smart"]),
        (("other",), []),
    ):
        seen = sees(Caller(account="a", key="k", scope=Scope(models=models)))
        assert [entry["id"] for entry in json.loads(list_body(CATALOG, False, seen))["data"]] == ids
        for name in ("vendor/model:free", "drawing", "smart"):
            if name in ids:
                assert json.loads(model_body(CATALOG, name, True, seen))["id"] == name
            else:
                with pytest.raises(KenariError) as caught:
                    model_body(CATALOG, name, True, seen)
                assert caught.value.code == "model_not_found"


def test_a_route_has_the_abilities_of_any_member_and_the_caps_of_all_m2() -> None:
    """Not those of its first member: what is said of it holds whoever answers."""
    first = Model(
        id="a",
        targets=TARGET,
        reasoning=False,
        vision=True,
        context_window=9000,
        max_output_tokens=100,
        price=Price("1", "10"),
    )
    second = Model(
        id="b",
        targets=(TargetRef("other", "b"),),
        efforts=("low", "high"),
        reasoning=True,
        vision=False,
        context_window=4000,
        max_output_tokens=900,
        price=Price("2", "3", "0.5", None),
        access="subscribers",
    )
    route = Catalog({"a": first, "b": second}, {"r": Route(("a", "b"))}).entry("r").model
    assert (route.reasoning, route.vision, route.levels) == (True, True, ("low", "high"))
    assert (route.context_window, route.max_output_tokens, route.access) == (4000, 100, "subscribers")
    assert route.price == Price("2", "10", "1", None)  # of each class the dearest: what is reserved covers any member
    assert route.inputs == ("text", "image")
    unknown = Model(id="c", targets=TARGET)
    route = Catalog({"a": first, "c": unknown}, {"r": Route(("a", "c"))}).entry("r").model
    assert (route.reasoning, route.vision, route.price) == (None, True, None)


def test_weights_of_a_member_that_stands_twice_add_up() -> None:
    models = {"a": Model(id="a", targets=TARGET, aliases=("x",)), "b": Model(id="b", targets=TARGET)}
    entry = Catalog(models, {"r": Route(("a", "b", "x"), (2, 1, 3))}).entry("r")
    assert [(member.model.id, member.weight) for member in entry.members] == [("a", 5), ("b", 1)]


def test_efforts_and_modalities_are_those_of_the_model_m1() -> None:
    model = Model(id="m", targets=TARGET, efforts=("low",), modalities=("text", "file"))
    entry = json.loads(model_body(Catalog({"m": model}, {}), "m", False, everything))
    assert (entry["efforts"], entry["input_modalities"], entry["output_modalities"]) == (
        ["low"],
        ["text", "file"],
        ["text"],
    )
    speech = Model(id="s", targets=TARGET, kind="speech")
    entry = json.loads(model_body(Catalog({"s": speech}, {}), "s", True, everything))
    assert (entry["input_modalities"], entry["output_modalities"]) == (["text"], ["audio"])
