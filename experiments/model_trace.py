"""What goes on in a language model while it reads a text.

probabilities    [T, V]       of the token behind each position
attention        [H, T, T]    of each Transformer block: who (row) looks at whom (column)
activations      [T, units]   of each LSTM: the gates i, f and o, the candidate g, the memory c, the output h;
                              in a model that has neither, the output of each block
"""

import dataclasses
from collections.abc import Callable

import keras
import numpy as np
from keras import ops

from keras_seq.callbacks.attention_maps import attention_weights
from keras_seq.generation.sampling_loop import not_finite
from keras_seq.layers import LSTM
from keras_seq.layers.gates import pre_activations
from keras_seq.layers.introspection import check_tokenizer

SIGNALS = {
    "h": "output h",
    "c": "memory c",
    "i": "input gate i",
    "f": "forget gate f",
    "g": "candidate g",
    "o": "output gate o",
    "y": "output",
}


@dataclasses.dataclass(frozen=True)
class Reading:
    """What a model did with a text of T tokens.

    Args:
        pieces: the text of each token.
        ids: their ids `[T]`.
        probabilities: of what comes behind each of them, float64 `[T, V]`.
        attention: `[H, T, T]` by the name of the block.
        activations: `[T, units]` by the name of the layer and the letter of the signal, a key of `SIGNALS`.
        decode: from a list of ids to their text.
    """

    pieces: tuple[str, ...]
    ids: np.ndarray
    probabilities: np.ndarray
    attention: dict[str, np.ndarray]
    activations: dict[str, dict[str, np.ndarray]]
    decode: Callable[[list[int]], str]

    def likeliest(self, top=5) -> list[list[tuple[str, float]]]:
        """Behind each position the likeliest tokens and their probabilities, the likeliest first."""
        order = np.argsort(-self.probabilities, axis=-1, kind="stable")[:, :top]
        pieces = {n: self.decode([n]) for n in np.unique(order).tolist()}
        rows = zip(order.tolist(), self.probabilities, strict=True)
        return [[(pieces[n], float(probabilities[n])) for n in row] for row, probabilities in rows]

    def nexts(self) -> list[tuple[int, float]]:
        """The rank (0: the likeliest) and the probability of what does come behind each position but the last."""
        order = np.argsort(-self.probabilities[:-1], axis=-1, kind="stable")
        ranks = np.argmax(order == self.ids[1:, None], axis=-1)
        probabilities = self.probabilities[np.arange(len(ranks)), self.ids[1:]]
        return list(zip(ranks.tolist(), probabilities.tolist(), strict=True))


def lstm_signals(layer: LSTM, x) -> dict[str, np.ndarray]:
    """The inside of an LSTM at every position, by its formula (docs/rnn-lstm.md): `[T, units]` a letter.

    Args:
        layer: a built `LSTM`.
        x: its input `[1, T, D]`.
    """
    z = _numpy(pre_activations(layer, x, layer(x))[0])
    i, f, g, o = np.split(z, 4, axis=-1)
    i, f, g, o = _sigmoid(i), _sigmoid(f), np.tanh(g), _sigmoid(o)
    c = np.zeros_like(i)
    for t in range(len(c)):
        c[t] = f[t] * c[t - 1] + i[t] * g[t] if t else i[t] * g[t]
    told = {"i": i, "f": f, "g": g, "o": o, "c": c, "h": o * np.tanh(c)}
    return {letter: told[letter] for letter in SIGNALS if letter in told}


def read(model, tokenizer, ids) -> Reading:
    """Has a model read the ids `[T]`.

    Args:
        model: a `LanguageModel`.
        tokenizer: the `Vocabulary` or other tokenizer it was trained with.
        ids: at most as many as the model's context.
    """
    check_tokenizer(tokenizer, model)
    ids = np.asarray(ids)
    logits = _numpy(model(ids[None], training=False)[0]).astype("float64")
    if np.isnan(logits).any():
        raise not_finite()
    attention = {name: weights[0] for name, weights in attention_weights(model, ids[None]).items()}
    activations, outputs = {}, {}
    x = model.embedding(ids[None])
    for block in model.blocks:
        if type(block) is LSTM:  # a layer that inherits from it has another formula
            activations[block.name] = lstm_signals(block, x)
        x = block(x, training=False)
        if not isinstance(block, keras.layers.Dropout):
            outputs[block.name] = {"y": _numpy(x[0])}
    if not attention and not activations:
        activations = outputs
    probabilities = np.exp(logits - np.logaddexp.reduce(logits, axis=-1, keepdims=True))
    pieces = tuple(tokenizer.decode([n]) for n in ids.tolist())
    return Reading(pieces, ids, probabilities, attention, activations, tokenizer.decode)


def most_varied(signal, count) -> np.ndarray:
    """The units `[T, units]` -> `[count]` whose value changes most over the text, the most changing first."""
    return np.argsort(-signal.std(axis=0), kind="stable")[:count]


def _sigmoid(x) -> np.ndarray:
    return 1 / (1 + np.exp(-x))


def _numpy(x) -> np.ndarray:
    return ops.convert_to_numpy(ops.cast(x, "float32"))
