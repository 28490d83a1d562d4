"""A client's wishes besides the conversation: thinking, tool choice, answer format.

The encoder reads them a second time to see what `fit` has changed; what it left alone travels as the client wrote it.
"""

from typing import cast

from kenari.core.request import EFFORTS, Effort, Format, Thinking, ToolChoice
from kenari.dialects.fields import Fields, read_effort

_CHOICES = "an object whose type is auto, any, none or tool"


def read_thinking(fields: Fields) -> Thinking | None:
    """How much to reason, from `thinking` and `output_config.effort` (R1)."""
    config = fields.child("output_config")
    effort = None if config is None else cast("Effort | None", read_effort(config, "effort", EFFORTS))
    thinking = fields.child("thinking")
    if thinking is None:
        return None if effort is None else Thinking(effort=effort)
    match thinking.string("type"):
        case "enabled":
            budget = thinking.integer("budget_tokens", 1)
            if budget is None:
                raise thinking.fault("budget_tokens", "is required when thinking is enabled. give a number of tokens")
            return Thinking(effort=effort, budget=budget)
        case "adaptive":
            return Thinking(effort=effort, adaptive=True)
        case "disabled":
            return Thinking(effort="none")
        case _:
            raise thinking.fault("type", "must be enabled, adaptive or disabled")


def read_tool_choice(fields: Fields) -> tuple[ToolChoice | None, bool | None]:
    """Whether a tool must be called, and False where calls must not be parallel."""
    raw = fields.get("tool_choice")
    if raw is None:
        return None, None
    choice = fields.child("tool_choice")
    assert choice is not None
    parallel = False if choice.boolean("disable_parallel_tool_use") else None
    match choice.string("type"):
        case "auto":
            return ToolChoice("auto"), parallel
        case "any":
            return ToolChoice("required"), parallel
        case "none":
            return ToolChoice("none"), None
        case "tool":
            return ToolChoice("named", choice.require_string("name", "the name of a tool")), parallel
        case _:
            raise fields.fault("tool_choice", f"must be {_CHOICES}")


def read_format(fields: Fields) -> Format | None:
    """The form of the answer: `output_config.format`, or `output_format` as it was called before."""
    config = fields.child("output_config")
    wanted = (config.child("format") if config is not None else None) or fields.child("output_format")
    if wanted is None:
        return None
    if wanted.string("type") != "json_schema":
        raise wanted.fault("type", "must be json_schema")
    schema = wanted.typed("schema", "object")
    if schema is None:
        raise wanted.fault("schema", "is required and must be an object")
    return Format("json_schema", schema=schema)
