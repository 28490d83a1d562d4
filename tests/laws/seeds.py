"""Faults that are seeded into a copy of the source: each breaks rules of the contract, whose tests must then fail.

A seed replaces one piece of text that stands exactly once in its file. When the code changes so that the piece is not
there any more, the seed is to be written anew for the place where the rule lives now.
"""

from typing import NamedTuple


class Seed(NamedTuple):
    """In `file`, `old` becomes `new`; of the tests that name a number in `breaks`, at least one each must fail."""

    breaks: str
    file: str
    old: str
    new: str


CHAT, MSG, RSP = "dialects/chat/", "dialects/messages/", "dialects/responses/"
SEEDS = [
    # -- store and ledger
    Seed(
        "F9",
        "ledger/price.py",
        "return -(-self.products // PER) + self.fees",
        "return self.products // PER + self.fees",
    ),
    Seed("U5", "ledger/price.py", "        if leg.billed:", "        if leg:"),
    Seed(
        "S161", "ledger/price.py", "(usage.cache_read or 0) * price.cache_read", "(usage.cache_read or 0) * price.input"
    ),
    Seed(
        "S163 U5",
        "store/money.py",
        "left, code = standing.balance - standing.reserved,",
        "left, code = standing.balance,",
    ),
    Seed(
        "F8",
        "store/money.py",
        "            amount = -settlement.charge",
        "            amount = -min(settlement.charge, 10**9)",
    ),
    Seed(
        "A2",
        "store/money.py",
        "rest = budget.amount - spent.amount - spent.reserved",
        "rest = budget.amount - spent.amount",
    ),
    Seed(
        "F14",
        "store/money.py",
        "        if known is None:\n            return",
        "        if known or not known:\n            return",
    ),
    Seed("U7", "keeper/outage.py", "if caller.unlimited or reservation.amount == 0:", "if False:"),
    Seed("U4", "ledger/price.py", 'text = "|".join([currency, *', 'text = "|".join([*'),
    # -- chat completions
    Seed("S9", CHAT + "encode.py", 'DONE = b"data: [DONE]\\n\\n"', 'DONE = b""'),
    Seed("S36", CHAT + "encode.py", '"object":"chat.completion.chunk"', '"object":"chat.completion"'),
    Seed(
        "S37 S39",
        CHAT + "encode.py",
        "% (answer.id.encode(), answer.created, jsonx.encode(answer.model))",
        '% (b"chatcmpl-1", answer.created, jsonx.encode(answer.model))',
    ),
    Seed(
        "S38",
        CHAT + "encode.py",
        "(answer.id.encode(), answer.created, jsonx.encode(answer.model))",
        "(answer.id.encode(), answer.created, b'\"x\"')",
    ),
    Seed("S41", CHAT + "encode.py", 'b\'{"role":"assistant","content":""}\'', 'b\'{"content":""}\''),
    Seed("S21 S43", CHAT + "encode.py", '","reasoning_content":"\' + text', '","thoughts":"\' + text'),
    Seed(
        "S44",
        CHAT + "encode.py",
        '"type": "function", "function": function}\n        return self._chunk',
        '"function": function}\n        return self._chunk',
    ),
    Seed("S46 F1", CHAT + "encode.py", 'b"tool_calls", "filter"', 'b"stop", "filter"'),
    Seed("S47 S51", CHAT + "encode.py", "if not prompt and not output:", "if prompt or output:"),
    Seed("S27", CHAT + "encode.py", "if not prompt and not output:", "if False:"),
    Seed("S48", CHAT + "encode.py", "if usage.cache_read:", "if usage.cache_read is not None:"),
    Seed(
        "S53 S31",
        CHAT + "encode.py",
        'return b"data: " + jsonx.encode(envelope(error)) + b"\\n\\n" + DONE',
        "return DONE",
    ),
    Seed("S34", CHAT + "encode.py", "if self._hide or not event.delta:", "if not event.delta:"),
    Seed("D15", CHAT + "encode.py", 'return self._chunk(b"{}") if self.started', 'return b"" if self.started'),
    Seed("S39", CHAT + "encode.py", '"object":"chat.completion","created"', '"object":"completion","created"'),
    Seed("S52", CHAT + "encode.py", 'end + b"}\\n\\n" + found + DONE', 'end + b"}\\n\\n" + DONE + found'),
    Seed("D13", RSP + "encode.py", "jsonx.encode(annotations(text, found.items)) if found", 'b"[]" if found'),
    Seed("S116", RSP + "request.py", "read_served(tool, kind, served)", "pass"),
    Seed("D9", "dialects/served.py", "if kind not in SERVED:", "if False:"),
    Seed("D19", MSG + "request.py", 'if kind.startswith("web_search_"):', "if False:"),
    Seed("D13", "gateway/loop.py", "if self._legs.called:\n", "if False:\n"),
    Seed("S145", "gateway/media.py", "if data.startswith(_PDF) and target.takes_files():", "if True:"),
    Seed("D11", "gateway/media.py", "            if not inside:\n                raise", "            raise"),
    # -- messages
    Seed(
        "S10 S66", MSG + "encode.py", 'event_frame(b"message_delta", end) + _STOP', 'event_frame(b"message_delta", end)'
    ),
    Seed("S60 S61", MSG + "encode.py", '"stop_sequence": None,\n            "usage": usage,', '"stop_sequence": None,'),
    Seed(
        "S65",
        MSG + "encode.py",
        '"usage": usage_object(self._usage, found.searches if found is not None else 0),',
        "",
    ),
    Seed("S72", MSG + "encode.py", '"call": "tool_use",', '"call": "end_turn",'),
    Seed("S71", MSG + "encode.py", '"name": event.name, "input": {}}', '"name": event.name, "input": ""}'),
    Seed(
        "S62 S64",
        MSG + "encode.py",
        'out.append(event_frame(b"content_block_stop"',
        '(event_frame(b"content_block_stop"',
    ),
    Seed("S77", MSG + "encode.py", "self._index += 1\n", "self._index += 2\n"),
    Seed(
        "S69 D20", MSG + "encode.py", 'out.append(_DELTA % self._index + jsonx.encode(signature) + b"}\\n\\n")', "pass"
    ),
    Seed("S22", MSG + "encode.py", '"type":"thinking_delta"', '"type":"text_delta"'),
    Seed("S25", MSG + "encode.py", '"type":"input_json_delta"', '"type":"json_delta"'),
    Seed(
        "S68 S73", MSG + "encode.py", '"error": {"type": error.in_stream_anthropic_type,', '"error": {"type": "fault",'
    ),
    Seed("E5", MSG + "encode.py", 'if error.code == "context_length_exceeded" and', "if False and"),
    Seed("E6", MSG + "encode.py", '"error": inner, "request_id": request_id}', '"error": inner}'),
    # -- responses
    Seed("S100 S99", RSP + "resource.py", '"resp_" + answer.id', "answer.id"),
    Seed("S151 S97", RSP + "resource.py", '"input_tokens_details":{"cached_tokens":%d},', '"cached":%d,'),
    Seed("S98", RSP + "resource.py", '{"code": error.code, "message": error.message}', '{"code": error.code}'),
    Seed("S156", RSP + "resource.py", 'else "max_output_tokens"', 'else "length"'),
    Seed("S147 S148", RSP + "resource.py", '"object":"response",', '"object":"resp",'),
    Seed("D2", RSP + "resource.py", '"presence_penalty":0.0,', '"presence_penalty":null,'),
    Seed("D1 S149", RSP + "items.py", '"annotations":%b', '"notes":%b'),
    Seed("S149", RSP + "items.py", '"role":"assistant","content"', '"content"'),
    Seed("S152", RSP + "items.py", '{"type": "summary_text", "text"', '{"type": "text", "text"'),
    Seed("S154", RSP + "items.py", 'out["arguments"] = jsonx', 'out["args"] = jsonx'),
    Seed("F12", "core/ids.py", 'return f"{prefix}_{request}{index:02d}"', 'return f"{prefix}_{index}"'),
    Seed("S78", RSP + "encode.py", "self._numbers = count()", "self._numbers = count(0, 2)"),
    Seed("S90", RSP + "encode.py", 'self._frame("response.completed"', 'self._frame("response.done"'),
    Seed(
        "S92", RSP + "encode.py", 'return self._frame("response.created"', 'return self._frame("response.in_progress"'
    ),
    Seed("S91", RSP + "encode.py", 'self._frame("response.failed"', 'self._frame("response.completed"'),
    Seed("S94", RSP + "encode.py", "if not self._reasoning:\n", "if True:\n"),
    Seed(
        "S88 S96",
        RSP + "encode.py",
        'out = self._about("response.function_call_arguments.done"',
        'out = b"" and self._about("x"',
    ),
    # -- what a Responses client may ask
    Seed("S105", RSP + "request.py", 'if fields.get("previous_response_id") is not None:', "if False:"),
    Seed("S110", RSP + "request.py", "if not items:", "if False:"),
    Seed("S113", RSP + "request.py", "if instructions:", "if False:"),
    Seed("S126", RSP + "request.py", "if not allowed:", "if False:"),
    Seed(
        "S117",
        RSP + "request.py",
        'notices.append(Notice(kind[:64], "a tool of a kind that is not served here"))',
        'raise tool.fault("type", "x")',
    ),
    Seed("D9", RSP + "request.py", 'if kind.startswith("kenari:"):', "if False:"),
    Seed(
        "S119 S172", RSP + "request.py", 'if word not in ("auto", "none", "required"):\n            raise wrong', "pass"
    ),
    Seed("S121", RSP + "request.py", 'raise reasoning.fault("effort"', 'return reasoning.fault("effort"'),
    Seed("S128", RSP + "request.py", "<= MAX_CACHE_KEY else None", "<= 9999 else None"),
    Seed("S124 S125", RSP + "request.py", 'SAMPLING = ("temperature", "top_p")', "SAMPLING = ()"),
    Seed(
        "D18", RSP + "request.py", 'case "namespace" if namespace is None:', 'case "containers" if namespace is None:'
    ),
    Seed("S141", RSP + "history.py", 'raise item.fault("role", "must be', 'return item.fault("role", "must be'),
    Seed("S143", RSP + "history.py", 'if role not in ("user", "assistant"):', "if False:"),
    Seed("S144", RSP + "history.py", 'case "input_file":', 'case "never":'),
    Seed(
        "S140",
        RSP + "history.py",
        'elif kind != "additional_tools":  # unknown kinds are dropped (S140)\n            self',
        'elif kind != "additional_tools":\n            raise item.fault("type", "x")\n            self',
    ),
    Seed("D17", RSP + "history.py", 'if not (item.string("id") or "").startswith("rs_"):', "if False:"),
    Seed(
        "D26",
        RSP + "history.py",
        '"custom_tool_call", "local_shell_call", "tool_search_call"})',
        '"tool_search_call"})',
    ),
    Seed("S138", RSP + "history.py", 'text = _texts(item, "summary") or', 'text = b"" or'),
    # -- fit
    Seed(
        "R3",
        "dialects/fit/reasoning.py",
        "if not target.profile.reasoning_content_roundtrip or not part.text:",
        "if not part.text:",
    ),
    Seed("D5", "dialects/fit/reasoning.py", "if sealed is None or sealed.maker != target.maker:", "if sealed is None:"),
    Seed("F12", "dialects/fit/tools.py", "raise bad_request(", "return bad_request("),
    Seed("S123", "dialects/fit/request.py", "DEFAULT_OUTPUT = 65536", "DEFAULT_OUTPUT = 4096"),
    Seed(
        "D23",
        "dialects/fit/request.py",
        "return min(request.max_output, target.max_output)",
        "return request.max_output",
    ),
    # -- gateway
    Seed("D14", "gateway/heads.py", '\\r\\nrequest-id: " + value', '\\r\\nrequest: " + value'),
    Seed("E2", "gateway/heads.py", "if wait is not None:", "if False:"),
    Seed("E1", "gateway/heads.py", "if error.should_retry is not None:", "if False:"),
    Seed("S15 S5", "gateway/sinks.py", "self.exchange.write(KEEPALIVE)", "pass"),
    Seed("D7", "gateway/gate.py", "self.error = interrupted() if self.content else error", "self.error = error"),
    Seed(
        "E4",
        "dialects/failures.py",
        'return KenariError("upstream_error", _NO_ANSWER, elsewhere=True)',
        'return KenariError("bad_request", _NO_ANSWER)',
    ),
    Seed("E3", "dialects/failures.py", "if status in (401, 403):", "if status == 999:"),
    Seed("E7", "dialects/failures.py", "if status in (503, 529):", "if status == 999:"),
    Seed("S54 S176", "core/errors.py", "interrupted the response before it finished. send", "broke off. send"),
    Seed("D6", "core/grammar.py", "return [] if stopped else [Failure(interrupted())]", "return []"),
    Seed(
        "U1",
        "core/usage.py",
        "output=later.output or _kept(self.output, later.output),",
        "output=(self.output or 0) + (later.output or 0),",
    ),
    Seed(
        "U2",
        "core/usage.py",
        "return (self.fresh or 0) + cached",
        "return self.fresh or 0",
    ),
    Seed("S107", "doors/public.py", 'return KenariError("not_found"', 'return KenariError("bad_request"'),
    Seed("D24", "doors/public.py", 'and b"upgrade" in exchange.headers', "and False"),
    Seed("M4", "gateway/count.py", "if number is not None:", "if number != 0:"),
    # -- keys, limits, money
    Seed("A2", "keys/scopes.py", 'if pattern.endswith("*") else name == pattern', 'if pattern.endswith("*") else True'),
    Seed("A1", "keys/stored.py", "self._secrets.get(fingerprint(self._hmac_key, secret))", "self._secrets.get(secret)"),
    Seed("A4", "gateway/rates.py", "{name}: {rate.remaining}", "{name}: {rate.limit}"),
    Seed("D25", "keys/limits.py", "SAME_BODY = 20", "SAME_BODY = 2000"),
    Seed("S174 S17", "keys/memory.py", "if worst is not None:", "if worst is None:"),
    Seed("S163 F8", "gateway/serve.py", "least=quote.least if quote else 0,", "least=0,"),
    Seed("F8", "gateway/quote.py", "request.max_output = max(1, cap)", "request.max_output = None"),
    Seed("F8", "gateway/attempt.py", "tally is not None and tally.over and", "tally is None and"),
    Seed("F9", "gateway/admission.py", "if price is None and services", "if price == 0 and services"),
    Seed("U5 U6", "gateway/billing.py", "billed = said or", "billed = True or"),
    Seed("U3", "gateway/estimate.py", "output=said if missing_output else usage.output,", "output=usage.output,"),
    Seed("F7", "gateway/billing.py", "(attempt.began or (plain and attempt.sent))", "attempt.began"),
    Seed(
        "U7 S162",
        "gateway/run.py",
        "line.price = services.pricing.price(one.candidate.model)",
        "line.price = None",
    ),
    Seed(
        "S161",
        "gateway/admission.py",
        "line.charge = self._pricing.charge(line.legs, line.price)",
        "line.charge = 0",
    ),
    Seed("F14", "gateway/repeats.py", "if shared.body_digest != body:", "if False:"),
    Seed("F14", "gateway/repeats.py", "if not await self._answers.attach(account, claim.repeat, shared):", "if True:"),
    Seed("F8", "gateway/tab.py", "        if wanted.amount > left:", "        if False:"),
    Seed("A4", "gateway/serve.py", "async with counted(services, exchange, dialect, caller):", "if True:"),
    Seed("F14", "gateway/repeats.py", 'client.write(b"".join(self._sent or ()))', "pass"),
    Seed("M2", "catalog/policies.py", "return (int(standing), wait)", "return (0, 0.0)"),
    Seed("M2", "catalog/models.py", "targets = tuple(dict.fromkeys(", "targets = tuple(list("),
    Seed("M2", "catalog/health.py", "if health.excluded_until > now else (0.0", "if False else (0.0"),
    Seed("M2", "keeper/health.py", "if member is not teller:", "if member is teller:"),
    Seed("D7", "gateway/kinds/form.py", "self._form.read(at - self._more)", "self._form.read(at)"),
    Seed("D25", "gateway/kinds/form.py", "(model.kept, size, file.kept)", "(self._type, size, file.kept)"),
    Seed("M4", "gateway/count.py", '"/responses/input_tokens"', '"/input_tokens"'),
    Seed("M3", "catalog/policies.py", "ranked.sort(key=lambda one: choices[one.index].name != wish.pin)", "pass"),
    Seed("M3", "gateway/failover.py", "conversation = routing.conversation_key(", "_ = routing.conversation_key("),
    Seed("E7", "gateway/failover.py", "window <= before:", "False:"),
    Seed("E2", "gateway/failover.py", "wait = max(0.001, min(waits, default=USUAL_WAIT))", "wait = USUAL_WAIT"),
    Seed("S173", "catalog/models.py", "if entry.model.kind != kind:", "if False:"),
    Seed("U7", "gateway/run.py", "if own else 0", "if False else 0"),
    Seed("E3", "gateway/plan.py", "if not candidate.own or error is None", "if True or error is None"),
    Seed(
        "S14",
        "wire/sse.py",
        "elif colon and not name:\n                self.comments += 1",
        "elif colon and not name:\n                seen = True",
    ),
    Seed("S20 S63", MSG + "encode.py", '"type":"text_delta"', '"type":"delta"'),
    Seed("S84", RSP + "encode.py", '"response.reasoning_summary_text.done"', '"response.reasoning_text.done"'),
    # -- the admin port
    Seed("A3", "doors/admin/door.py", "actor = await self._guard.admit(exchange)", 'actor = ""'),
    Seed("A3", "doors/admin/guard.py", "if hmac.compare_digest(_digest(token), self._digest):", "if token:"),
    Seed(
        "F11",
        "doors/admin/door.py",
        "if exchange.path == METRICS_PATH and self._open_metrics:",
        "if not exchange.body:",
    ),
    Seed(
        "F11",
        "keeper/secrets.py",
        "load_or_make(folder / ADMIN_FILE, (ADMIN_PREFIX + made).encode())",
        "(made.encode(), 1)",
    ),
    Seed(
        "F10",
        "keeper/secrets.py",
        'else load_or_make(folder / "kenari.secret", entropy.hex().encode())[0]',
        "else entropy",
    ),
    Seed(
        "U4",
        "doors/admin/values.py",
        "return format_amount(amount, self.digits)",
        "return format_amount(amount // 10**7 * 10**7, self.digits)",
    ),
]
