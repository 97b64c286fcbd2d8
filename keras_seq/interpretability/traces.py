"""Trace what a language model computes for a text.

probabilities    [T, V]       of the next token at each position
attention        [H, T, T]    of each Transformer block: queries in rows, keys in columns
activations      [T, units]   of each LSTM: the gates i, f and o, the candidate g, the cell state c, the output h;
                              in a model with neither attention nor LSTM, the output of each block
"""

import dataclasses
from collections.abc import Callable

import keras
import numpy as np
from keras import ops

from keras_seq.generation.sampling_loop import not_finite
from keras_seq.interpretability.activations import attention_weights
from keras_seq.layers import LSTM
from keras_seq.layers.introspection import check_tokenizer, pre_activations
from keras_seq.models import LanguageModel

SIGNAL_NAMES = {
    "h": "output h",
    "c": "cell state c",
    "i": "input gate i",
    "f": "forget gate f",
    "g": "candidate g",
    "o": "output gate o",
    "y": "output",
}


@dataclasses.dataclass(frozen=True)
class ModelTrace:
    """Hold what a model computes for a text of T tokens."""

    tokens: tuple[str, ...]
    ids: np.ndarray
    probabilities: np.ndarray  # float64
    attention: dict[str, np.ndarray]  # by the name of the block
    activations: dict[str, dict[str, np.ndarray]]  # by the name of the layer and the key of SIGNAL_NAMES
    decode: Callable[[list[int]], str]

    def top_predictions(self, top: int = 5) -> list[list[tuple[str, float]]]:
        """Return the most likely next tokens and their probabilities at each position, most likely first.

        Args:
            top: Number of tokens.
        """
        order = np.argsort(-self.probabilities, axis=-1, kind="stable")[:, :top]
        texts = {n: self.decode([n]) for n in np.unique(order).tolist()}
        rows = zip(order.tolist(), self.probabilities, strict=True)
        return [[(texts[n], float(probabilities[n])) for n in row] for row, probabilities in rows]

    def next_token_ranks(self) -> list[tuple[int, float]]:
        """Return the rank (0: most likely) and probability of the actual next token, at each position but the last."""
        order = np.argsort(-self.probabilities[:-1], axis=-1, kind="stable")
        ranks = np.argmax(order == self.ids[1:, None], axis=-1)
        probabilities = self.probabilities[np.arange(len(ranks)), self.ids[1:]]
        return list(zip(ranks.tolist(), probabilities.tolist(), strict=True))


def lstm_signals(layer: LSTM, x) -> dict[str, np.ndarray]:
    """Compute the signals `[T, units]` of an LSTM by the equations of docs/rnn-lstm.md."""
    z = _numpy(pre_activations(layer, x, layer(x))[0])
    i, f, g, o = np.split(z, 4, axis=-1)
    i, f, g, o = _sigmoid(i), _sigmoid(f), np.tanh(g), _sigmoid(o)
    c = np.zeros_like(i)
    for t in range(len(c)):
        c[t] = f[t] * c[t - 1] + i[t] * g[t] if t else i[t] * g[t]
    signals = {"i": i, "f": f, "g": g, "o": o, "c": c, "h": o * np.tanh(c)}
    return {letter: signals[letter] for letter in SIGNAL_NAMES if letter in signals}


def trace_model(model: keras.Model, tokenizer, ids) -> ModelTrace:
    """Run a language model on a text and record what it computes.

    Args:
        model: A `LanguageModel`.
        tokenizer: The tokenizer of its ids.
        ids: Ids `[T]`, at most as many as the context length.

    Raises:
        ValueError: If it is another model, such as an `Ensemble`, its tokenizer has another vocabulary size, or a logit
            is not finite.
    """
    if not isinstance(model, LanguageModel):
        kind = type(model).__name__
        raise ValueError(f"{model.name} is of the class {kind}; expected a LanguageModel, such as one of its members.")
    check_tokenizer(tokenizer, model)
    ids = np.asarray(ids)
    logits = _numpy(model(ids[None], training=False)[0]).astype("float64")
    if np.isnan(logits).any():
        raise not_finite()
    attention = {name: weights[0] for name, weights in attention_weights(model, ids[None]).items()}
    activations, outputs = {}, {}
    x = model.embedding(ids[None])
    for block in model.blocks:
        if type(block) is LSTM:  # subclasses have other equations
            activations[block.name] = lstm_signals(block, x)
        x = block(x, training=False)
        if not isinstance(block, keras.layers.Dropout):
            outputs[block.name] = {"y": _numpy(x[0])}
    if not attention and not activations:
        activations = outputs
    probabilities = np.exp(logits - np.logaddexp.reduce(logits, axis=-1, keepdims=True))
    tokens = tuple(tokenizer.decode([n]) for n in ids.tolist())
    return ModelTrace(tokens, ids, probabilities, attention, activations, tokenizer.decode)


def most_variable_units(signal, count: int) -> np.ndarray:
    """Return the units of a signal whose standard deviation is highest, in descending order."""
    return np.argsort(-signal.std(axis=0), kind="stable")[:count]


def _sigmoid(x) -> np.ndarray:
    return 1 / (1 + np.exp(-x))


def _numpy(x) -> np.ndarray:
    return ops.convert_to_numpy(ops.cast(x, "float32"))
