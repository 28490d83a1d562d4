"""Images and documents on their way to a model, in all three formats: as it takes them, or a 400 that names the part."""

import asyncio
import base64
import json
from typing import Any

import pytest
from gateway_kit import DONE, FORMATS, GOOD, ROLE, Exchange, Rig, Script, chunk
from test_documents import sample

from kenari.core.fetched import Fetched, FetchError, Wanted
from kenari.core.profile import Profile
from kenari.documents.limits import DocumentLimits, Reading
from kenari.documents.pool import DocumentReader
from kenari.gateway.media import Media, MediaLimits

PNG = base64.b64encode(b"\x89PNG\r\n\x1a\n" + b"\0" * 40).decode()
JPEG = base64.b64encode(b"\xff\xd8\xff\xe0" + b"\0" * 40).decode()
MESSAGES_GOOD = Script(
    [
        (0, b'event: message_start\ndata: {"type":"message_start","message":{"usage":{"input_tokens":1}}}\n\n'),
        (
            0,
            b'event: content_block_start\ndata: {"type":"content_block_start","index":0,"content_block":{"type":"text"}}\n\n',
        ),
        (
            0,
            b'event: content_block_delta\ndata: {"type":"content_block_delta","index":0,'
            b'"delta":{"type":"text_delta","text":"Hello"}}\n\n',
        ),
        (0, b'event: content_block_stop\ndata: {"type":"content_block_stop","index":0}\n\n'),
        (0, b'event: message_delta\ndata: {"type":"message_delta","delta":{"stop_reason":"end_turn"},"usage":{}}\n\n'),
        (0, b'event: message_stop\ndata: {"type":"message_stop"}\n\n'),
        (0, None),
    ]
)


class Web:
    """A fetcher that has some pages; `asked` counts."""

    def __init__(self, **pages: Fetched | str) -> None:
        self.pages, self.asked = pages, [""][:0]

    async def fetch(self, wanted: Wanted) -> Fetched:
        self.asked.append(wanted.url)
        page = self.pages[wanted.url.rsplit("/", 1)[-1]]
        if isinstance(page, str):
            raise FetchError(page)
        return page


def page(body: bytes, media_type: str = "image/png", status: int = 200) -> Fetched:
    return Fetched(url="", status=status, media_type=media_type, charset="", body=body)


class SlowReader:
    """A reader whose loop-bound parts are made where it runs."""

    async def read(self, data: bytes, name: str = "", media_type: str = "") -> Reading:
        return await DocumentReader(DocumentLimits()).read(data, name, media_type)


def rig(
    web: Web | None = None,
    dialect: str = "chat",
    profile: Profile | None = None,
    limits: MediaLimits | None = None,
    **model: Any,
) -> Rig:
    answer = GOOD if dialect == "chat" else MESSAGES_GOOD
    made = Rig([answer], dialect=dialect, profile=profile, **model)
    made.services = {"media": Media(web or Web(), SlowReader(), limits or MediaLimits())}
    return made


def image(client: str, url: str) -> dict[str, Any]:
    """A user's message with one image behind a text."""
    if client == "chat":
        content = [{"type": "text", "text": "see"}, {"type": "image_url", "image_url": {"url": url}}]
        return {"messages": [{"role": "user", "content": content}]}
    if client == "responses":
        parts = [{"type": "input_text", "text": "see"}, {"type": "input_image", "image_url": url}]
        return {"input": [{"role": "user", "content": parts}]}
    source: dict[str, Any] = {"type": "url", "url": url}
    if url.startswith("data:"):
        media, _, data = url[5:].partition(";base64,")
        source = {"type": "base64", "media_type": media, "data": data}
    content = [{"type": "text", "text": "see"}, {"type": "image", "source": source}]
    return {"max_tokens": 9, "messages": [{"role": "user", "content": content}]}


WHERE = {"chat": "messages[0].content[1]", "messages": "messages[0].content[1]", "responses": "input[0].content[1]"}


def sent_image(made: Rig) -> str:
    """The one image that the provider got, as an address."""
    (body,) = made.upstream.sent
    for part in body["messages"][-1]["content"]:
        if part["type"] == "image_url":
            return part["image_url"]["url"]
        if part["type"] == "image":
            source = part["source"]
            return source.get("url") or f"data:{source['media_type']};base64,{source['data']}"
    raise AssertionError("no image was sent")


@pytest.mark.parametrize("client", FORMATS)
@pytest.mark.parametrize("dialect", ["chat", "messages"])
def test_s142_images_travel_as_data_and_as_addresses(client: str, dialect: str) -> None:
    """S142: on all three formats; the type is what the bytes say."""
    made = rig(dialect=dialect)
    assert made.ask(client, **image(client, f"data:image/jpeg;base64,{PNG}")).status == 200
    assert sent_image(made) == f"data:image/png;base64,{PNG}"
    made = rig(dialect=dialect)
    assert made.ask(client, **image(client, "https://x.example/a")).status == 200
    assert sent_image(made) == "https://x.example/a"


@pytest.mark.parametrize("client", FORMATS)
def test_an_address_is_fetched_where_the_provider_does_not(client: str) -> None:
    web = Web(a=page(base64.b64decode(JPEG), "image/png"))
    made = rig(web, profile=Profile(image_urls=False))
    assert made.ask(client, **image(client, "https://x.example/a")).status == 200
    assert sent_image(made) == f"data:image/jpeg;base64,{JPEG}"
    assert web.asked == ["https://x.example/a"]


@pytest.mark.parametrize("client", FORMATS)
@pytest.mark.parametrize(
    ("there", "why"),
    [
        ("this address is not on the public internet and is not read from here", "public internet"),
        (page(b"<html>"), "no PNG"),
        (page(b"", status=404), "status 404"),
    ],
)
def test_an_image_that_cannot_be_fetched_names_its_part(client: str, there: Any, why: str) -> None:
    made = rig(Web(a=there), profile=Profile(image_urls=False))
    answer = made.ask(client, **image(client, "https://x.example/a"))
    assert answer.status == 400
    assert why in answer.json["error"]["message"]
    assert WHERE[client] in answer.json["error"]["message"]
    assert made.upstream.requests == []


@pytest.mark.parametrize("client", FORMATS)
@pytest.mark.parametrize("url", ["https://x.example/a", f"data:image/png;base64,{PNG}"])
def test_a_model_without_vision_names_the_part(client: str, url: str) -> None:
    made = rig(Web(), vision=False, profile=Profile(image_urls=False))
    answer = made.ask(client, **image(client, url))
    assert answer.status == 400
    assert f"{WHERE[client]}: this model does not see images" in answer.json["error"]["message"]
    if client != "messages":
        assert answer.json["error"]["param"] == WHERE[client]


@pytest.mark.parametrize("client", FORMATS)
def test_limits_of_count_and_size_and_kind(client: str) -> None:
    few = rig(limits=MediaLimits(max_images=0)).ask(client, **image(client, f"data:image/png;base64,{PNG}"))
    assert "at most 0 images" in few.json["error"]["message"]
    small = rig(limits=MediaLimits(max_image_size=20)).ask(client, **image(client, f"data:image/png;base64,{PNG}"))
    assert "larger than" in small.json["error"]["message"]
    text = base64.b64encode(b"hello there, this is text").decode()
    none = rig().ask(client, **image(client, f"data:image/png;base64,{text}"))
    assert (none.status, "no PNG" in none.json["error"]["message"]) == (400, True)


def test_an_address_is_fetched_once_for_all_candidates() -> None:
    web = Web(a=page(base64.b64decode(PNG)))
    lost = Script([(0, b"")], 500, {b"content-type": b"application/json"})
    made = Rig(Script([(0, None)], 500), GOOD, profile=Profile(image_urls=False))
    assert lost.status == 500
    made.services = {"media": Media(web, SlowReader(), MediaLimits())}
    assert made.ask("chat", **image("chat", "https://x.example/a")).status == 200
    assert web.asked == ["https://x.example/a"]


def test_d11_an_image_in_a_result_that_cannot_be_fetched_is_a_note() -> None:
    """D11: the client's user cannot mend what a tool brought."""
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    result = [{"type": "image_url", "image_url": {"url": "https://x.example/a"}}]
    made = rig(Web(a="it is not there"), profile=Profile(image_urls=False))
    messages: list[Any] = [
        {"role": "user", "content": "hi"},
        {"role": "assistant", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c", "content": result},
    ]
    assert made.ask("chat", messages=messages).status == 200
    assert "it is not there" in json.dumps(made.upstream.sent[0]["messages"][2])


# -- documents


def data_url(data: bytes, media_type: str) -> str:
    return f"data:{media_type};base64,{base64.b64encode(data).decode()}"


def file(data: bytes, name: str, media_type: str = "application/octet-stream") -> dict[str, Any]:
    part = {"type": "file", "file": {"filename": name, "file_data": data_url(data, media_type)}}
    return {"messages": [{"role": "user", "content": [{"type": "text", "text": "read"}, part]}]}


def document(data: bytes, media_type: str = "application/pdf") -> dict[str, Any]:
    source = {"type": "base64", "media_type": media_type, "data": base64.b64encode(data).decode()}
    block = {"type": "document", "source": source, "title": "paper"}
    return {"max_tokens": 9, "messages": [{"role": "user", "content": [{"type": "text", "text": "read"}, block]}]}


def text_sent(made: Rig) -> str:
    content = made.upstream.sent[0]["messages"][-1]["content"]
    return content if isinstance(content, str) else "".join(part.get("text", "") for part in content)


def test_s145_file_parts_work_on_any_model() -> None:
    """S145: a model that takes no files gets the text, with the name and the pages."""
    made = rig()
    assert made.ask("chat", **file(sample("deck.pptx"), "deck.pptx")).status == 200
    text = text_sent(made)
    assert '[document "deck.pptx", 2 pages]' in text
    assert text.index("marker-slide-one") < text.index("marker-slide-two") < text.index("[end of the document]")


def test_document_blocks_work_on_any_model() -> None:
    made = rig()
    assert made.ask("messages", **document(sample("report.pdf"))).status == 200
    assert "marker-one" in text_sent(made)


@pytest.mark.parametrize("native", [True, False])
def test_a_pdf_goes_as_it_is_where_it_is_taken(native: bool) -> None:
    made = rig(dialect="messages", profile=Profile(files=native))
    body = document(sample("report.pdf"))
    assert made.ask("messages", **body).status == 200
    block = made.upstream.sent[0]["messages"][0]["content"][1]
    if native:
        assert block == body["messages"][0]["content"][1]
    else:
        assert "marker-one" in json.dumps(block)
    made = rig(profile=Profile(files=native))
    assert made.ask("chat", **file(sample("report.pdf"), "r.pdf", "application/pdf")).status == 200
    assert ("file_data" in json.dumps(made.upstream.sent[0])) is native


def test_other_kinds_are_text_even_where_pdfs_are_taken() -> None:
    made = rig(dialect="messages")
    assert made.ask("chat", **file(sample("report.docx"), "r.docx")).status == 200
    block = made.upstream.sent[0]["messages"][0]["content"][1]
    assert (block["type"], block["source"]["type"], block["title"]) == ("document", "text", "r.docx")
    assert "marker-one" in block["source"]["data"]


@pytest.mark.parametrize(
    ("name", "why"), [("encrypted.pdf", "password"), ("scanned.pdf", "pictures of pages"), ("report.pdf", "broken")]
)
def test_a_document_that_cannot_be_read_names_its_part_and_itself(name: str, why: str) -> None:
    data = sample(name)[:900] if why == "broken" else sample(name)
    answer = rig().ask("chat", **file(data, name))
    assert answer.status == 400
    assert answer.json["error"]["param"] == "messages[0].content[1]"
    assert f'"{name}"' in answer.json["error"]["message"]
    assert why in answer.json["error"]["message"]


def test_a_document_behind_an_address_is_fetched() -> None:
    made = rig(Web(**{"r.docx": page(sample("report.docx"), "application/octet-stream")}))
    part = {"type": "file", "file": {"filename": "r.docx", "file_data": "https://x.example/r.docx"}}
    assert made.ask("chat", messages=[{"role": "user", "content": [part]}]).status == 200
    assert "marker-three" in text_sent(made)


def test_file_ids_and_too_many_documents_are_refused() -> None:
    part = {"type": "file", "file": {"file_id": "file-1"}}
    answer = rig().ask("chat", messages=[{"role": "user", "content": [part]}])
    assert (answer.status, answer.json["error"]["param"]) == (400, "messages[0].content[0].file.file_id")
    many = rig(limits=MediaLimits(max_documents=0)).ask("chat", **file(b"x", "x.bin"))
    assert "at most 0 documents" in many.json["error"]["message"]


def test_s144_responses_point_to_chat() -> None:
    """S144."""
    part = {"type": "input_file", "file_data": data_url(b"x", "text/plain")}
    answer = rig().ask("responses", input=[{"role": "user", "content": [part]}])
    assert (answer.status, "/v1/chat/completions" in answer.json["error"]["message"]) == (400, True)


class Endless:
    """A reader that never comes to an end, and notes that it was stopped."""

    def __init__(self) -> None:
        self.cancelled: list[bool] = []

    async def read(self, data: bytes, name: str = "", media_type: str = "") -> Reading:
        try:
            await asyncio.sleep(30)
        except asyncio.CancelledError:
            self.cancelled.append(True)
            raise
        return Reading()


def test_a_client_that_leaves_ends_the_reading() -> None:
    """U6: nothing is read on for nobody, and no provider is called."""
    endless = Endless()
    made = Rig([GOOD])
    made.services = {"media": Media(Web(), endless, MediaLimits())}
    made.ask("chat", act=Exchange.leave, **file(b"\0PK", "x.bin"))
    assert endless.cancelled == [True]
    assert made.upstream.requests == []
    assert made.books.lines[0].ending == "client_closed"


def test_a_stream_lives_while_a_document_is_read() -> None:
    """Keepalives go out meanwhile."""

    class Waiting:
        async def read(self, data: bytes, name: str = "", media_type: str = "") -> Reading:
            await asyncio.sleep(0.3)
            return Reading(text="late")

    made = Rig([Script([(0, ROLE), (0, chunk({"content": "ok"}, "stop")), (0, DONE), (0, None)])])
    made.silence = (0.05, 120.0)
    made.services = {"media": Media(Web(), Waiting(), MediaLimits())}
    answer = made.ask("chat", **file(b"\0PK", "x.bin"))
    assert b": keepalive" in answer.out
    assert "late" in text_sent(made)


# -- counting


COUNTED = Script([(0, b'{"input_tokens":4321}'), (0, None)], 200, {b"content-type": b"application/json"})
OFFICE = "application/vnd.openxmlformats-officedocument.wordprocessingml.document"


def count(made: Rig, body: dict[str, Any], act: Any = None) -> Exchange:
    return made.post("/v1/messages/count_tokens", json.dumps({"model": "m", **body}).encode(), act=act)


def counting(answer: Script, dialect: str, web: Web | None = None, **more: Any) -> Rig:
    made = Rig([answer], dialect=dialect, **more)
    made.services = {"media": Media(web or Web(), SlowReader(), MediaLimits())}
    return made


def test_m4_a_document_is_counted_as_the_text_that_a_call_would_send() -> None:
    """M4: an office file is text before a provider that takes none is asked to count."""
    made = counting(COUNTED, "messages")
    answer = count(made, document(sample("report.docx"), OFFICE))
    assert (answer.status, answer.json) == (200, {"input_tokens": 4321})
    block = made.upstream.sent[0]["messages"][0]["content"][1]
    assert "marker-one" in block["source"]["data"]
    assert "messages/count_tokens" in made.upstream.requests[0].url


def test_m4_our_own_count_is_of_the_documents_text() -> None:
    """M4: not of its packed bytes."""
    few = count(counting(GOOD, "chat"), document(b"PK" + b" word" * 20, "text/plain")).json["input_tokens"]
    many = count(counting(GOOD, "chat"), document(sample("long.pdf"))).json["input_tokens"]
    assert few < 100
    assert 5_000 < many < 15_000  # 29,000 by its bytes


def test_m4_a_document_that_cannot_be_read_is_said_as_for_a_call() -> None:
    made = counting(COUNTED, "messages", profile=Profile(files=False))
    answer = count(made, document(sample("encrypted.pdf")))
    assert (answer.status, "password" in answer.json["error"]["message"]) == (400, True)
    assert made.upstream.requests == []


def test_m4_nothing_is_fetched_for_a_count() -> None:
    """A count is free, so it must not be a way to make this server read addresses."""
    web = Web()
    made = counting(COUNTED, "messages", web, profile=Profile(image_urls=False, files=False))
    assert count(made, image("messages", "https://x.example/a")).json["input_tokens"] >= 1000
    source = {"type": "url", "url": "https://x.example/a.pdf"}
    block = {"type": "document", "source": source}
    assert count(made, {"messages": [{"role": "user", "content": [block]}]}).json["input_tokens"] >= 1
    assert web.asked == []


def test_a_client_that_leaves_ends_the_reading_for_a_count() -> None:
    endless = Endless()
    made = Rig([COUNTED], dialect="messages")
    made.services = {"media": Media(Web(), endless, MediaLimits())}
    count(made, document(sample("report.docx"), OFFICE), act=Exchange.leave)
    assert endless.cancelled == [True]
    assert made.upstream.requests == []
