"""What the SDKs meet: the plays of the scripted provider, and kenari in front of it."""

from typing import NamedTuple

from gateway import Gateway
from upstream import Call, Play, ScriptedProvider

PAGE_MODEL = "step-3-7-flash:free"
"""The model of the two pages' samples."""
WEATHER = (
    Call("get_weather", ['{"ci', 'ty": "Jak', 'arta"}']),
    Call("get_weather", ['{"city": ', '"Bandung"}']),
)
PLAYS: dict[str, Play] = {
    PAGE_MODEL: Play(text=("1, 2", ", 3")),
    "thinks": Play(reasoning=("I count ", "from one."), signature="c2VjcmV0", text=("1, 2", ", 3"), output=9),
    "calls": Play(calls=WEATHER, finish="tool_calls", output=21),
    "talks-and-calls": Play(
        reasoning=("Look ", "it up."), text=("I will look.",), calls=WEATHER[:1], finish="tool_calls"
    ),
    "cut": Play(text=("1, 2",), finish="length"),
    "cached": Play(text=("1, 2, 3",), prompt=120, cached=100),
    "refuses": Play(status=400, message="the temperature is out of range"),
    "overflows": Play(status=400, message="This model's maximum context length is 8192 tokens"),
    "limits": Play(status=429, message="slow down", headers=(("retry-after", "1"),)),
    "breaks": Play(text=("1, 2", ", 3"), broken=True),
    "fails": Play(text=("1, 2", ", 3"), fails=True),
    "quiet": Play(reasoning=("Well. ",), text=("1, 2", ", 3"), pause=2.5),
}
DIALECTS = ("chat", "messages", "responses")


class Rig(NamedTuple):
    """kenari in front of a provider that speaks `dialect`."""

    gateway: Gateway
    provider: ScriptedProvider
    dialect: str

    @property
    def v1(self) -> str:
        """The base address of OpenAI's SDKs."""
        return self.gateway.url + "/v1"
