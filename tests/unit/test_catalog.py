"""The catalogue: M1 in both shapes, names that are not there, and models of other kinds (S173)."""

import json
from typing import Any

import pytest

from kenari.catalog.models import ENDPOINTS, Catalog, Kind, Model, Price, TargetRef
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
CATALOG = Catalog(MODELS, {"smart": ("vendor/model:free",)})


def listed(anthropic: bool) -> dict[str, Any]:
    return json.loads(CATALOG.list_body(anthropic))


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
    entry = json.loads(CATALOG.model_body("vendor/model:free", anthropic))
    assert entry == listed(anthropic)["data"][0]
    assert json.loads(CATALOG.model_body("short", anthropic))["id"] == "vendor/model:free"
    assert json.loads(CATALOG.model_body("smart", anthropic))["id"] == "smart"


def test_an_empty_catalogue_is_a_list_too() -> None:
    assert json.loads(Catalog({}, {}).list_body(True))["first_id"] is None


def test_names_lead_to_their_model_s109() -> None:
    for name in ("vendor/model:free", "short", "smart"):
        assert CATALOG.chat_model(name).targets == TARGET


@pytest.mark.parametrize("name", ["nothing", "", "vendor", "a\r\nb: c", "\ud800", "x" * 1000])
def test_a_name_that_is_not_there_is_404_model_not_found(name: str) -> None:
    for body in (False, True):
        with pytest.raises(KenariError) as caught:
            _ = CATALOG.model_body(name, False) if body else CATALOG.chat_model(name)
        error = caught.value
        assert (error.code, error.status, error.param) == ("model_not_found", 404, "model")
        assert error.message.isprintable()
        assert len(error.message) < 200


@pytest.mark.parametrize("kind", [kind for kind in ENDPOINTS if kind != "chat"])
def test_s173_a_model_of_another_kind_is_400_and_names_its_endpoint(kind: Kind) -> None:
    with pytest.raises(KenariError) as caught:
        Catalog({"m": Model(id="m", targets=TARGET, kind=kind)}, {}).chat_model("m")
    assert (caught.value.code, caught.value.status, caught.value.param) == ("bad_request", 400, "model")
    assert ENDPOINTS[kind] in caught.value.message


def test_a_target_that_two_members_of_a_route_share_is_tried_once_m2() -> None:
    two = TargetRef("other", "b")
    models = {"a": Model(id="a", targets=TARGET), "b": Model(id="b", targets=(two, *TARGET))}
    assert Catalog(models, {"r": ("a", "b", "a")}).chat_model("r").targets == (*TARGET, two)
