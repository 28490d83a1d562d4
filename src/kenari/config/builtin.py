"""What is served without any configuration: a provider that plays scripts, and its one model."""

from kenari.catalog.models import NOTHING, Model, TargetRef
from kenari.config.settings import Config
from kenari.providers.base import Provider

SCRIPTED = Provider(name="demo", dialect="chat", base_url="scripted:")
SCRIPTED_MODEL = Model(
    id="demo/scripted",
    targets=(TargetRef("demo", "scripted"),),
    reasoning=True,
    vision=True,
    context_window=32768,
    max_output_tokens=8192,
    price=NOTHING,
)


def builtin_config() -> Config:
    """The configuration when there is none."""
    return Config(providers={SCRIPTED.name: SCRIPTED}, models={SCRIPTED_MODEL.id: SCRIPTED_MODEL})
