"""Register models by name: one decorator, one dictionary.

    @register("my_model")
    @dataclasses.dataclass(frozen=True)
    class MyModelConfig(LanguageModelConfig): ...

Experiments and tests read their models from `MODELS`: `--models my_model`, the options `--my-model.embedding-dim`, and
the sizes of a model that trains in seconds.
"""

import dataclasses
from collections.abc import Callable
from typing import Any

MODELS: dict[str, type] = {}
"""Model configs by name."""

TINY = {"embedding_dim": 16, "units": 32, "num_layers": 1, "num_heads": 2, "feed_forward_dim": 64, "state_dim": 4}
"""Sizes of a model that trains in seconds, as far as it has them."""

_ORDER = (
    *("rnn", "gru", "lstm", "bilstm", "mingru", "minlstm", "mamba", "mamba2", "hawk", "gla", "gated_deltanet"),
    *("xlstm", "rwkv7", "hybrid", "transformer", "gpt2", "llama", "bert", "seq2seq"),
)  # of lists and help, where other models follow


def register(name: str, tiny: dict[str, Any] | None = None) -> Callable[[type], type]:
    """Decorate a model's config: enter it in `MODELS`, set `model_name`, and set `tiny`, the sizes for a smoke run."""

    def decorate(config_class):
        config_class.model_name = name
        config_class.tiny = {**_fields_of(config_class, TINY), **(tiny or {})}
        models = {**MODELS, name: config_class}
        MODELS.clear()
        MODELS.update({known: models.pop(known) for known in _ORDER if known in models} | models)
        return config_class

    return decorate


def sized(name: str, **sizes) -> Any:
    """Return the config of a registered model with these sizes, as far as it has them."""
    return MODELS[name](**_fields_of(MODELS[name], sizes))


def tiny_config(name: str, **changes) -> Any:
    """Return the tiny config of a registered model, with these fields changed as far as it has them."""
    return sized(name, **{**MODELS[name].tiny, **changes})


def _fields_of(config_class, values):
    names = {field.name for field in dataclasses.fields(config_class)}
    return {name: value for name, value in values.items() if name in names}
