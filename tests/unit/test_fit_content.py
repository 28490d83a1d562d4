"""`fit`: texts, images, files, earlier reasoning and its proofs."""

import pytest
from fit_kit import call, envelope, fitted, number, request, result, said, target, user

from kenari.core.errors import KenariError
from kenari.core.request import (
    AudioPart,
    FilePart,
    ImagePart,
    OpaquePart,
    Part,
    ReasoningPart,
    ResultPart,
    TextPart,
    Turn,
)
from kenari.dialects.fit import Target

IMAGE = ImagePart(media_type="image/png", data=b"AAAA")
LINK = ImagePart(url=b"https://example.test/a.png")
BILLING = b"x-anthropic-billing-header: cc_version=1"


def shown(turns: list[Turn]) -> list[tuple[str, list[bytes]]]:
    return [(turn.role, [getattr(part, "text", b"<image>") for part in turn.parts]) for turn in turns]


# -- images and files


def with_image() -> list[Turn]:
    return [user(), said(call("look")), user(result("c1", TextPart(b"here"), IMAGE)), user(TextPart(b"next"))]


def test_d11_images_in_results_move_behind_them_on_chat() -> None:
    turns = fitted(request(*with_image(), origin="responses")).turns
    inner = turns[2].parts[0]
    assert isinstance(inner, ResultPart)
    assert not any(isinstance(part, ImagePart) for part in inner.parts)
    assert turns[3] == Turn("user", [IMAGE])
    assert shown(turns)[4] == ("user", [b"next"])


def test_d11_images_of_several_results_stay_behind_the_last_one() -> None:
    turns = [user(), said(call("a", "1"), call("b", "2")), user(result("1", IMAGE)), user(result("2", IMAGE))]
    assert fitted(request(*turns, origin="responses")).turns[4:] == [Turn("user", [IMAGE, IMAGE])]


@pytest.mark.parametrize("dialect", ["messages", "responses"])
def test_d11_images_stay_in_results_where_the_format_takes_them(dialect: str) -> None:
    turns = fitted(request(*with_image()), target(dialect)).turns
    inner = turns[2].parts[0]
    assert isinstance(inner, ResultPart)
    assert IMAGE in inner.parts
    assert len(turns) == 4


@pytest.mark.parametrize("dialect", ["chat", "messages", "responses"])
def test_d11_a_model_that_does_not_see_gets_a_note(dialect: str) -> None:
    turns = fitted(request(*with_image()), target(dialect, vision=False)).turns
    inner = turns[2].parts[0]
    assert isinstance(inner, ResultPart)
    assert b"does not see" in getattr(inner.parts[1], "text", b"")
    assert len(turns) == 4


def refused(part: Part, to: Target) -> KenariError:
    turn = user(part)
    turn.param = "messages[0]"
    with pytest.raises(KenariError) as caught:
        fitted(request(turn), to)
    error = caught.value
    assert (error.code, error.param, error.elsewhere) == ("bad_request", "messages[0].content[0]", True)
    return error


def test_an_image_of_a_person_is_never_lost_in_silence() -> None:
    assert "see images" in refused(IMAGE, target(vision=False)).message
    assert "data URL" in refused(LINK, target(image_urls=False)).message
    assert fitted(request(user(IMAGE)), target(image_urls=False)).turns[0].parts == [IMAGE]
    assert fitted(request(user(LINK)), target(vision=None)).turns[0].parts == [LINK]


def test_documents_go_where_they_are_taken_and_their_text_elsewhere() -> None:
    pdf, text = FilePart(media_type="application/pdf", data=b"AAAA"), FilePart(text=b"words")
    assert "documents" in refused(pdf, target()).message
    assert fitted(request(user(pdf)), target("messages")).turns[0].parts == [pdf]
    assert fitted(request(user(pdf)), target(files=True)).turns[0].parts == [pdf]
    assert fitted(request(user(text)), target()).turns[0].parts == [TextPart(b"words")]
    assert "audio" in refused(AudioPart(b"AAAA", "wav"), target("messages")).message
    assert "audio" in refused(AudioPart(b"AAAA", "wav"), target()).message


# -- texts


def test_d21_the_billing_block_is_stripped_when_translating_only() -> None:
    turns = [Turn("system", [TextPart(BILLING), TextPart(b"be kind")]), user(TextPart(BILLING))]
    crossed = fitted(request(*turns, origin="messages")).turns
    assert shown(crossed) == [("system", [b"be kind"]), ("user", [BILLING])]
    same = fitted(request(*turns, origin="messages"), target("messages")).turns
    assert shown(same)[0] == ("system", [BILLING, b"be kind"])


def test_d27_empty_texts_do_not_cross() -> None:
    turns = [user(TextPart(b""), TextPart(b"a")), said(TextPart(b"")), user()]
    assert shown(fitted(request(*turns), target("messages")).turns) == [("user", [b"a"]), ("user", [b"hi"])]


def test_d27_empty_parts_beside_others_are_left_out_on_chat() -> None:
    empty, word = TextPart(b"", raw=number(b'{"text":""}')), TextPart(b"a", raw=number(b'{"text":"a"}'))
    turns = [user(empty, word), said(empty, call("f")), user(result()), user(empty), user(TextPart(b""))]
    assert [turn.parts for turn in fitted(request(*turns)).turns] == [
        [word],
        [call("f")],
        [result()],
        [empty],
        [TextPart(b"")],
    ]
    thinks = said(ReasoningPart(b"hm"), empty)
    kept = fitted(request(user(), thinks, user()), target(reasoning_content_roundtrip=True)).turns[1]
    assert kept.parts == thinks.parts


def test_d12_s139_later_system_texts_stay_in_place() -> None:
    turns = [Turn("system", [TextPart(b"lead")]), user(), Turn("system", [TextPart(b"later")], developer=True), user()]
    assert [turn.role for turn in fitted(request(*turns)).turns] == ["system", "user", "system", "user"]
    for to in (target("messages"), target(system_first_only=True)):
        out = fitted(request(*turns), to).turns
        assert [turn.role for turn in out] == ["system", "user", "user", "user"]
        assert shown(out)[2] == ("user", [b"later"])


def test_d23_developer_is_system_where_the_provider_does_not_know_it() -> None:
    turns = [Turn("system", [TextPart(b"lead")], developer=True), user()]
    assert not fitted(request(*turns)).turns[0].developer
    assert fitted(request(*turns), target(developer_role=True)).turns[0].developer
    assert fitted(request(*turns), target("responses")).turns[0].developer


def test_a_conversation_of_system_texts_only() -> None:
    """Only Messages providers want a message besides the system prompt; the client's own word for it is named."""
    only = request(Turn("system", [TextPart(b"lead")]))
    assert len(fitted(only).turns) == 1
    with pytest.raises(KenariError) as caught:
        fitted(only, target("messages"))
    assert (caught.value.code, caught.value.param) == ("bad_request", "messages")


def test_parts_of_one_format_reach_that_format_only_and_are_told() -> None:
    part = OpaquePart("messages", "server_tool_use", number(b"{}"))
    crossed = fitted(request(user(), said(part, TextPart(b"a")), user(), origin="messages"))
    assert [notice.name for notice in crossed.notices] == ["server_tool_use"]
    same = fitted(request(user(), said(part), user(), origin="messages"), target("messages"))
    assert same.turns[1].parts == [part]


# -- reasoning (D5, D20, R3)

OTHER = "messages/other/claude"


def thought(part: ReasoningPart, to: Target) -> list[Part]:
    turns = fitted(request(user(), said(part, TextPart(b"so")), user(), origin="messages"), to).turns
    return turns[1].parts[:-1]


def test_r3_chat_gets_earlier_reasoning_by_flag_only_and_never_a_proof() -> None:
    part = ReasoningPart(b"hm", envelope(("signature", "s", 2)))
    assert thought(part, target()) == []
    assert thought(part, target(reasoning_content_roundtrip=True)) == [ReasoningPart(b"hm")]


def test_d5_an_envelope_opens_to_its_maker_as_the_blocks_that_it_covers() -> None:
    proof = envelope(("signature", "s1", 4), ("redacted", "r", 0), ("signature", "s2", 3))
    part = ReasoningPart(b"ab\\ncdef", proof)
    assert thought(part, target("messages")) == [
        ReasoningPart(b"ab\\nc", "s1", "signature"),
        ReasoningPart(b"", "r", "redacted"),
        ReasoningPart(b"def", "s2", "signature"),
    ]


@pytest.mark.parametrize("dialect", ["chat", "messages", "responses"])
def test_d5_a_proof_made_elsewhere_is_never_sent(dialect: str) -> None:
    proof = envelope(("signature", "foreign", 2), ("encrypted", "foreign", 0), maker=OTHER)
    for part in (ReasoningPart(b"hm", proof), ReasoningPart(b"hm", proof[:-2] + "AA"), ReasoningPart(b"hm", "kn1.")):
        for kept in thought(part, target(dialect, reasoning_content_roundtrip=True)):
            assert isinstance(kept, ReasoningPart)
            assert kept.proof == ""
            assert dialect != "messages"


def test_d20_our_own_mark_is_stripped_towards_messages() -> None:
    assert thought(ReasoningPart(b"hm", envelope(("mark", "", 2))), target("messages")) == []
    assert thought(ReasoningPart(b"hm", ""), target("messages", raw_signatures=True)) == []


def test_d5_a_raw_signature_goes_to_a_model_whose_signatures_travel_raw() -> None:
    part = ReasoningPart(b"hm", "raw", "signature")
    assert thought(part, target("messages", raw_signatures=True)) == [part]
    assert thought(part, target("messages")) == []
    assert thought(part, target()) == []
    redacted = ReasoningPart(b"", "blob", "redacted")
    assert thought(redacted, target("messages", raw_signatures=True)) == [redacted]


def test_d5_a_responses_maker_gets_its_encrypted_content_back() -> None:
    part = ReasoningPart(b"hm", envelope(("encrypted", "blob", 2)))
    assert thought(part, target("responses")) == [ReasoningPart(b"hm", "blob", "encrypted")]
    foreign = ReasoningPart(b"hm", "raw", "signature")
    assert thought(foreign, target("responses")) == [ReasoningPart(b"hm")]


def test_a_turn_of_foreign_reasoning_only_is_left_out() -> None:
    part = ReasoningPart(b"hm", envelope(("signature", "s", 2), maker=OTHER))
    turns = fitted(request(user(), said(part), user(), origin="messages"), target("messages")).turns
    assert [turn.role for turn in turns] == ["user", "user"]
