"""The models of the first run are for every key: they cost nothing, and a key of an account needs a price (F9, S162)."""

from kenari.app import with_demo
from kenari.config.builtin import builtin_config
from kenari.gateway.prices import pricing


def test_the_models_of_the_first_run_cost_nothing() -> None:
    config = with_demo(builtin_config(), "http://127.0.0.1:1/v1", "model.gguf")
    assert list(config.models) == ["smollm2-135m:free", "demo/scripted"]
    for model in config.models.values():
        price = pricing("USD", enforce=True).price(model)
        assert price is not None, f"{model.id} would be refused to keys of accounts"
        assert (price.input, price.output, price.cache_read, price.cache_write) == (0, 0, 0, 0)
