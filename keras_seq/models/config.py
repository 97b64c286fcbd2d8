"""Register models by name, and build language models from their configs, frozen dataclasses of their sizes.

    @register("my_model")
    @dataclasses.dataclass(frozen=True)
    class MyModelConfig(LanguageModelConfig): ...        ids [B, T] -> embedding -> blocks -> head -> logits [B, T, V]

Embedding and head are made in one way for all; a config makes the blocks. Experiments and tests read their models from
`MODELS`: `--models my_model`, the options `--my-model.embedding-dim`, and the sizes of a model that trains in seconds.
"""

import abc
import contextlib
import dataclasses
import math
import types
import typing
from collections.abc import Callable, Iterator
from typing import Any, ClassVar, Literal

import keras

from keras_seq import checks, layers
from keras_seq.models.language_model import LanguageModel
from keras_seq.ops.dispatch import clear_session

MODELS: dict[str, type] = {}
"""Model configs by name."""

TINY = {"embedding_dim": 16, "units": 32, "num_layers": 1, "num_heads": 2, "feed_forward_dim": 64, "state_dim": 4}
"""Sizes of a model that trains in seconds, as far as it has them."""

_ORDER = (
    *("rnn", "gru", "lstm", "bilstm", "mingru", "minlstm", "mamba", "mamba2", "hawk", "gla", "gated_deltanet"),
    *("deltaproduct", "kda", "xlstm", "rwkv7", "hybrid", "qwen3_5", "transformer", "gpt2", "llama", "bert"),
    *("modernbert", "seq2seq", "t5"),
)  # of lists and help, where other models follow


def register(name: str, tiny: dict[str, Any] | None = None, learning_rate: float = 0.02) -> Callable[[type], type]:
    """Decorate a model's config: enter it in `MODELS` and set what is not a field of it.

    Args:
        name: Its `model_name`.
        tiny: Sizes for a smoke run, where they are not those of TINY.
        learning_rate: Default of muon and normuon: 0.01 or 0.02, which is nearer to the best on Shakespeare
            (docs/results.md).
    """

    def decorate(config_class):
        config_class.model_name, config_class.learning_rate = name, learning_rate
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


SIZES = {
    *("embedding_dim", "units", "num_layers", "num_heads", "num_key_value_heads", "feed_forward_dim", "context_length")
}


def check_fields(config, kind: type) -> None:
    """Check the fields of a class by their types: numbers are positive, but for rates, and what is 0 by default."""
    for field in dataclasses.fields(kind):
        name, value, kinds = field.name, getattr(config, field.name), typing.get_args(field.type)
        if value is None and types.NoneType in kinds:
            continue
        if field.type is bool:
            checks.boolean(name, value)
        elif field.type is int or int in kinds:
            (checks.positive_integer if field.default != 0 else checks.non_negative_integer)(name, value)
        elif field.type is float:
            (checks.fraction if "dropout" in name else checks.positive_number)(name, value)
        elif typing.get_origin(field.type) is Literal:
            checks.one_of(name, value, kinds)
        elif field.type is layers.RotaryPositions and not isinstance(value, layers.RotaryPositions):
            raise ValueError(f"{name}={value!r}; expected RotaryPositions.")


@dataclasses.dataclass(frozen=True)
class LanguageModelConfig(abc.ABC):
    """Base class of the configs of language models: a subclass defines `blocks` and fields, such as `embedding_dim`.

    If there is a field `context_length`, the maximum number of positions, it has to be given to build the model;
    otherwise there is no limit. `model_name` is the name of the Keras model. Checked are `dropout`, `tie_embeddings`
    and the sizes that the models here have (SIZES).

    ```python
    @dataclasses.dataclass(frozen=True)
    class LinearAttentionConfig(LanguageModelConfig):
        embedding_dim: int = 128

        def blocks(self, dtype=None):
            return [PreNormResidual([GatedLinearAttention(num_heads=4, dtype=dtype)], dtype=dtype)]


    model = LinearAttentionConfig().build_model(vocabulary_size=65)
    ```
    """

    model_name: ClassVar[str | None] = None
    older_defaults: ClassVar[dict] = {}  # what a stored config means that is older than these fields, if not a default

    # without annotations, or fields of these names would be a config's first
    tie_embeddings = False  # whether the head is the transposed embedding matrix
    use_head_bias = False  # whether a head that is not tied adds a bias
    logit_soft_cap = None  # with a tied head, c of the logits c tanh(logits / c); None for the logits themselves

    def __post_init__(self):
        """Check the fields that most configs have; a size may be None if that is its default."""
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if field.name in SIZES and (value, field.default) != (None, None):
                checks.positive_integer(field.name, value)
        checks.fraction("dropout", getattr(self, "dropout", 0.0))
        checks.boolean("tie_embeddings", self.tie_embeddings)

    @abc.abstractmethod
    def blocks(self, dtype=None) -> list:
        """Return the layers between embedding and head.

        Args:
            dtype: A dtype policy or its name; None for Keras's default.
        """

    def build_model(self, vocabulary_size: int, dtype: str | keras.DTypePolicy | None = None) -> LanguageModel:
        """Build the Keras model from ids `[B, T]` to logits `[B, T, V]`.

        Args:
            vocabulary_size: V, at least 1.
            dtype: A dtype policy or its name, e.g. `"mixed_bfloat16"`; None for Keras's default.

        Returns:
            The model, with all weights built.

        Raises:
            ValueError: `vocabulary_size` is not a positive integer, `context_length` is None, or a size does not fit
                the others.
        """
        checks.positive_integer("vocabulary_size", vocabulary_size)
        context_length, blocks = self._context_length(), self.blocks(dtype)
        args, options = (vocabulary_size, self.embedding_dim), {"dtype": dtype, "name": "embedding"}
        if self.tie_embeddings:
            embedding = keras.layers.ReversibleEmbedding(*args, logit_soft_cap=self.logit_soft_cap, **options)
            head = None
        else:
            embedding = keras.layers.Embedding(*args, **options)
            head = layers.Dense(vocabulary_size, use_bias=self.use_head_bias, dtype=dtype, name="head")
        model = LanguageModel(embedding, blocks, head, context_length, dtype=dtype, name=self.model_name)
        model.build((None, None))
        return model

    def _context_length(self):
        """Return the maximum number of positions, or None for a model without a limit."""
        if not hasattr(self, "context_length"):
            return None
        if self.context_length is None:
            raise ValueError(
                f"{type(self).__name__}: context_length=None; expected a number of positions, e.g. context_length=64."
            )
        return self.context_length


# Scale the widths of a model until its number of parameters is closest to a target.
#
#     recurrent         units
#     Mamba             embedding_dim
#     minGRU, minLSTM   embedding_dim, with units and feed_forward_dim in proportion
#     recurrent heads   embedding_dim in steps of num_heads, with feed_forward_dim in proportion; then feed_forward_dim
#                       alone, or state_dim where there is none
#     Transformers      heads of the same width, so embedding_dim in steps of it, with feed_forward_dim in proportion;
#                       then feed_forward_dim alone, since these steps are coarse
#
# The number of parameters increases with each of these widths, so it can be searched by narrowing an interval.


@contextlib.contextmanager
def shapes_only() -> Iterator[None]:
    """Build models in a `with` block whose weights have shapes, which is enough to count them, and no values."""
    clear_session(free_memory=False)
    try:
        with keras.StatelessScope(initialize_variables=False):
            yield
    finally:
        clear_session(free_memory=False)  # Keras would draw the values at the end of its next scope


def match_parameter_count(model_config: Any, vocabulary_size: int, target: int) -> Any:
    """Return the model config at the width whose number of parameters is closest to a target."""

    def closest(make, start):
        return _closest(make, lambda candidate: _count_parameters(candidate, vocabulary_size), target, start)

    if hasattr(model_config, "num_heads") and not hasattr(model_config, "context_length"):
        heads = model_config.num_heads
        other = "feed_forward_dim" if hasattr(model_config, "feed_forward_dim") else "state_dim"
        start = -(-model_config.embedding_dim // heads)
        model_config = closest(lambda n: scale_width(model_config, "embedding_dim", n * heads), start)
        return closest(lambda n: dataclasses.replace(model_config, **{other: n}), getattr(model_config, other))
    if not hasattr(model_config, "num_heads"):
        recurrent = hasattr(model_config, "units") and not hasattr(model_config, "feed_forward_dim")
        width = "units" if recurrent else "embedding_dim"
        return closest(lambda n: scale_width(model_config, width, n), getattr(model_config, width))
    model_config = closest(lambda n: with_heads(model_config, n), model_config.num_heads)
    return closest(lambda n: dataclasses.replace(model_config, feed_forward_dim=n), model_config.feed_forward_dim)


def scale_width(model_config: Any, name: str, value: int) -> Any:
    """Return the model config with another width; with `embedding_dim`, the other widths change in proportion."""
    proportional = ("units", "feed_forward_dim") if name == "embedding_dim" else ()
    ratio = value / getattr(model_config, name)
    others = {n: max(1, round(getattr(model_config, n) * ratio)) for n in proportional if hasattr(model_config, n)}
    return dataclasses.replace(model_config, **{name: value}, **others)


def with_heads(model_config: Any, num_heads: int) -> Any:
    """Return the model config with another number of heads of the same width, and key-value heads in proportion."""
    embedding_dim = model_config.embedding_dim // model_config.num_heads * num_heads
    changes = {"num_heads": num_heads}
    if hasattr(model_config, "num_key_value_heads"):
        limit = max(1, num_heads * model_config.num_key_value_heads / model_config.num_heads)
        changes["num_key_value_heads"] = max(n for n in range(1, num_heads + 1) if num_heads % n == 0 and n <= limit)
    return dataclasses.replace(scale_width(model_config, "embedding_dim", embedding_dim), **changes)


def _count_parameters(model_config, vocabulary_size):
    with shapes_only():
        return model_config.build_model(vocabulary_size).count_params()


def _closest(make, count, target, start):
    """Return make(n) for the n >= 1 whose count is closest to the target, searching from `start`.

    The interval around the target is split where the target would be if the count grew with the square of n, which is
    nearly the case.
    """
    counts = {0: 0, start: count(make(start))}
    high = start
    while counts[high] < target:
        high *= 2
        counts[high] = count(make(high))
    low = max(n for n in counts if counts[n] < target)
    while high - low > 1:
        fraction = (math.sqrt(target) - math.sqrt(counts[low])) / (math.sqrt(counts[high]) - math.sqrt(counts[low]))
        middle = min(max(round(low + fraction * (high - low)), low + 1), high - 1)
        counts[middle] = count(make(middle))
        low, high = (middle, high) if counts[middle] < target else (low, middle)
    return make(min((n for n in (low, high) if n), key=lambda n: abs(counts[n] - target)))
