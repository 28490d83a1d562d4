"""The OpenAPI document of the management API: it says what is served, and what is served is as it says (schemathesis)."""

import asyncio
import json
import threading
from collections.abc import Generator
from pathlib import Path
from typing import Any, cast

import pytest
import uvloop
from admin_kit import TOKEN, admin_port, bill, kept
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from schemathesis import GenerationMode, openapi
from schemathesis.specs.openapi import checks

from kenari.core.errors import KINDS
from kenari.doors.admin.door import ROUTES
from kenari.doors.admin.openapi import document
from kenari.doors.admin.table import PREFIX, Route

EXAMPLES = 8
"""Right and wrong cases for each route: bounded, so that the whole takes seconds."""
RULES = cast("Any", checks)  # its functions are typed in part
CHECKS: list[Any] = [
    RULES.status_code_conformance,
    RULES.content_type_conformance,
    RULES.response_headers_conformance,
    RULES.response_schema_conformance,
    RULES.negative_data_rejection,
    RULES.unsupported_method,
]

openapi.format("network", st.ip_addresses().map(str) | st.just("10.0.0.0/8"))
openapi.format("when", st.dates().map(str) | st.integers(0, 2**31).map(str) | st.just(""))

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::ResourceWarning")


class Port:
    """An admin port in a thread of its own, for clients that block."""

    def __init__(self, folder: Path) -> None:
        self.url = ""
        self.ids: dict[str, str] = {}
        self._folder = folder
        self._ready, self._loop = threading.Event(), uvloop.new_event_loop()
        self._stop = asyncio.Event()
        self._thread = threading.Thread(target=self._loop.run_until_complete, args=(self._serve(),))

    def start(self) -> None:
        """Serve; returns when it does."""
        self._thread.start()
        assert self._ready.wait(10)

    def stop(self) -> None:
        """End it."""
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(10)
        self._loop.close()

    async def _serve(self) -> None:
        async with kept(self._folder) as store, admin_port(store) as admin:
            account = (await admin.ok("POST", f"{PREFIX}/accounts", {"name": "a", "credit": "10"}))["id"]
            key = (await admin.ok("POST", f"{PREFIX}/keys", {"account": account, "name": "k"}))["id"]
            await bill(store, account, key, "0" * 16)
            self.ids = {"accounts": account, "keys": key, "requests": "0" * 16}
            self.url = f"http://127.0.0.1:{admin.port}"
            self._ready.set()
            await self._stop.wait()


@pytest.fixture(scope="module")
def port(tmp_path_factory: pytest.TempPathFactory) -> Generator[Port]:
    """The port that all cases are played against."""
    one = Port(tmp_path_factory.mktemp("openapi"))
    one.start()
    yield one
    one.stop()


def the_document() -> dict[str, Any]:
    """The document as JSON values."""
    return json.loads(json.dumps(document(ROUTES, "0.0.0")))


SCHEMA = openapi.from_dict(the_document())
SCHEMA.config.generation.update(with_security_parameters=False)  # the token is ours to give


def _may_be_wrong(route: Route) -> bool:
    """Whether there is something in a call that the document restricts."""
    return bool(route.names or route.body or route.query)


@pytest.mark.parametrize(
    ("route", "mode"),
    [(route, GenerationMode.POSITIVE) for route in ROUTES]
    + [(route, GenerationMode.NEGATIVE) for route in ROUTES if _may_be_wrong(route)],
    ids=lambda value: value.name if isinstance(value, GenerationMode) else f"{value.method} {value.path}",
)
def test_what_is_served_is_as_the_document_says(route: Route, mode: GenerationMode, port: Port) -> None:
    """Half of the right cases name things that are there, so that more than 404 is seen."""
    operation = cast("Any", SCHEMA[PREFIX + route.path][route.method])

    @settings(
        max_examples=EXAMPLES,
        deadline=None,
        derandomize=True,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.data_too_large],
    )
    @given(case=operation.as_strategy(generation_mode=mode), there=st.booleans())
    def play(case: Any, there: bool) -> None:
        if there and mode.is_positive and route.names and route.method != "DELETE":
            case.path_parameters["id"] = port.ids[route.path.split("/")[1]]
        headers = {"authorization": f"Bearer {TOKEN}"}
        case.call_and_validate(base_url=port.url, headers=headers, checks=CHECKS, timeout=10)

    play()


def test_the_document_is_served_as_it_is_made(port: Port) -> None:
    schema = openapi.from_url(f"{port.url}{PREFIX}/openapi.json", headers={"authorization": f"Bearer {TOKEN}"})
    assert schema.raw_schema["openapi"] == "3.1.0"
    assert schema.raw_schema["paths"] == the_document()["paths"]


def test_every_route_stands_in_the_document_with_its_errors() -> None:
    paths = cast("dict[str, dict[str, Any]]", the_document()["paths"])
    for route in ROUTES:
        operation = paths[PREFIX + route.path][route.method.lower()]
        answers = operation["responses"]
        assert {str(route.status), "400", "401", "429", "500", "503"} <= set(answers)
        assert {str(KINDS[code].status) for code in route.errors} <= set(answers)
        assert ("requestBody" in operation) is (route.body is not None)
        assert {one["name"] for one in operation["parameters"] if one["in"] == "path"} == set(route.names)
    assert sum(len(methods) for methods in paths.values()) == len(ROUTES)
    names = [methods[name]["operationId"] for methods in paths.values() for name in methods]
    assert len(names) == len(set(names))
