"""Find out what a layer holds: linear probes, the logit lens, induction.

    probe                score_c(x) = x S^-1 m_c - m_c S^-1 m_c / 2 + log p_c         the largest is the class of x
    logit lens           head(norm(h_l))                          h_l: output of layer l; norm, head: those of the model
    induction score      1 - loss(second half) / loss(first half)                     of ids r_1 .. r_n r_1 .. r_n
    prefix matching      mean attention weight from the second r_i to what followed the first, position i + 1

A probe is linear discriminant analysis (Fisher, 1936; Rao, 1948), in closed form, without an optimizer that a result
could depend on; m_c: mean of class c; S: covariance within the classes; p_c: share of the class. Alain & Bengio (2016,
arXiv:1610.01644); shuffled labels show chance.
Logit lens: nostalgebraist (2020), arXiv:2303.08112. Induction: Olsson et al. (2022), arXiv:2209.11895; the score needs
nothing but logits, so that an LSTM has one too; prefix matching finds the heads that do it.
"""

import dataclasses
import itertools
from collections.abc import Collection, Sequence

import keras
import numpy as np
from keras import ops

from keras_seq import checks
from keras_seq.evaluation.losses import token_losses
from keras_seq.interpretability.activations import attention_weights, layer_outputs, logits_given
from keras_seq.layers import Dense, LayerNormalization, RMSNormalization
from keras_seq.layers.introspection import vocabulary_size

SHRINKAGE = 1e-3  # of the mean variance, added to the variances
BATCH_SIZE = 64  # rows of one forward pass
REPEATED_LENGTH = 24  # n, unless the model's context length is below 2 n
READOUT = (
    *(LayerNormalization, RMSNormalization, Dense),
    *(keras.layers.LayerNormalization, keras.layers.RMSNormalization, keras.layers.Dense, keras.layers.Dropout),
)


@dataclasses.dataclass(frozen=True)
class LinearProbe:
    """A linear classifier: the class of the largest `x @ weights + bias`."""

    classes: np.ndarray  # [C]
    weights: np.ndarray  # [D, C], float64
    bias: np.ndarray  # [C]

    def predict(self, x) -> np.ndarray:
        """Return the class of each vector.

        Args:
            x: `[N, D]`.
        """
        return self.classes[np.argmax(np.asarray(x, "float64") @ self.weights + self.bias, axis=-1)]

    def accuracy(self, x, labels) -> float:
        """Return the share of vectors whose class is predicted.

        Args:
            x: `[N, D]`.
            labels: Integers `[N]`.
        """
        return float(np.mean(self.predict(x) == labels))


@dataclasses.dataclass(frozen=True)
class ProbeScore:
    """Accuracies on held-out rows: of a probe, of the most common class, of a probe of shuffled labels."""

    accuracy: float
    chance: float
    shuffled: float


def fit_probe(x, labels) -> LinearProbe:
    """Fit a probe.

    Args:
        x: Vectors `[N, D]`.
        labels: Integers `[N]`, of at least two classes.

    Raises:
        ValueError: The shapes do not match, or there are fewer than two classes.
    """
    x, labels = np.asarray(x, "float64"), np.asarray(labels)
    if x.ndim != 2 or labels.shape != x.shape[:1]:
        raise ValueError(f"labels has shape {labels.shape} for x of shape {x.shape}; expected [N] for [N, D].")
    classes, members, counts = np.unique(labels, return_inverse=True, return_counts=True)
    if len(classes) < 2:
        raise ValueError(f"labels has {len(classes)} class(es); expected at least 2.")
    one_hot = np.eye(len(classes))[members]
    means = one_hot.T @ x / counts[:, None]
    deviations = x - means[members]
    covariance = deviations.T @ deviations / len(x)
    floor = SHRINKAGE * np.var(x, axis=0).mean() + 1e-12
    weights = np.linalg.solve(covariance + floor * np.eye(x.shape[1]), means.T)
    return LinearProbe(classes, weights, np.log(counts / len(x)) - np.einsum("cd,dc->c", means, weights) / 2)


def probe_layers(
    model: keras.Model, ids, labels, layers: Collection[str] | None = None, held_out: float = 0.25, seed: int = 0
) -> dict[str, ProbeScore]:
    """Fit a probe to the outputs of each layer, on the first rows, and score it on the others.

    ```python
    scores = probe_layers(model, ids, labels=np.isin(ids, vowels))  # {"embedding": ProbeScore(...), "lstm_0": ...}
    ```

    Args:
        model: A `LanguageModel`, or any Keras model if `layers` is given.
        ids: Its input, `[B, T]`; rows should be different texts.
        labels: Integers or bools `[B, T]`, what the output at each position is to tell; negative ones do not count.
        layers: Names of layers; None for the embedding and the blocks of a `LanguageModel`.
        held_out: Share of the rows that the probe is scored on.
        seed: Seed of the shuffled labels.

    Raises:
        ValueError: The shapes do not match, labels are not integers or bools, none of them counts in the held-out rows,
            there are fewer than 2 rows, `held_out` is not a fraction, or a layer does not exist.
    """
    labels = np.asarray(labels)
    if np.shape(ids) != labels.shape or labels.ndim != 2 or len(labels) < 2:
        raise ValueError(f"labels has shape {labels.shape} for ids of shape {np.shape(ids)}; expected [B, T], B > 1.")
    if labels.dtype.kind not in "biu":
        raise ValueError(f"labels has the dtype {labels.dtype}; expected integers or bools.")
    labels = labels.astype("int64")
    checks.fraction("held_out", held_out)
    return {name: _score(x, labels, held_out, seed) for name, x in _batched_outputs(model, ids, layers).items()}


def probe_past_tokens(
    model: keras.Model,
    distances: Sequence[int] = (0, 1, 2, 4, 8, 16),
    num_tokens: int = 16,
    count: int = 192,
    seed: int = 0,
) -> dict[str, dict[int, ProbeScore]]:
    """Measure which of the last tokens a linear probe can read from each layer's output.

    The texts are random: with no language to guess from, what a probe finds was stored.

    Args:
        model: A `LanguageModel`.
        distances: How many positions ago the token was, each at least 0 and less than the context length.
        num_tokens: Size of the random subset of the vocabulary that texts are drawn from; chance is its inverse.
        count: Number of texts, of four times the largest distance, at least 32 tokens, at most the context length.
        seed: Seed of the texts.

    Returns:
        By the name of the layer and the distance, a `ProbeScore`.

    Raises:
        ValueError: An argument is out of its range.
    """
    context_length = getattr(model, "context_length", None) or np.inf
    if not len(distances):
        raise ValueError("distances is empty; expected at least one.")
    for distance in distances:
        checks.non_negative_integer("distances", distance)
    checks.integer("num_tokens", num_tokens, min_value=2)
    if max(distances) >= context_length:
        raise ValueError(f"distances has {max(distances)}; expected less than the context length, {context_length}.")
    length = int(min(max(4 * max(distances), 32), context_length))
    random = np.random.default_rng(seed)
    tokens = ordinary_tokens(model)
    tokens = random.choice(tokens, size=min(num_tokens, len(tokens)), replace=False)
    ids = random.choice(tokens, size=(checks.integer("count", count, min_value=2), length))
    past = {d: np.pad(ids, ((0, 0), (d, 0)), constant_values=-1)[:, :length] for d in distances}
    outputs = _batched_outputs(model, ids, None)
    return {name: {d: _score(x, labels, 0.25, seed) for d, labels in past.items()} for name, x in outputs.items()}


def _batched_outputs(model, ids, layers):
    ids = np.asarray(ids)
    parts = [layer_outputs(model, ids[n : n + BATCH_SIZE], layers) for n in range(0, len(ids), BATCH_SIZE)]
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


def _score(x, labels, held_out, seed):
    """Return the scores of a layer's output `[B, T, D]`."""
    split = min(max(1, round(len(x) * (1 - held_out))), len(x) - 1)
    (x_train, train), (x_test, test) = (
        (x[rows][labels[rows] >= 0], labels[rows][labels[rows] >= 0]) for rows in (slice(split), slice(split, None))
    )
    if not len(test):
        raise ValueError("labels has none of at least 0 in the rows that are held out; expected more rows or labels.")
    classes, counts = np.unique(train, return_counts=True)
    shuffled = np.random.default_rng(seed).permutation(train)
    return ProbeScore(
        fit_probe(x_train, train).accuracy(x_test, test),
        float(np.mean(test == classes[np.argmax(counts)])),
        fit_probe(x_train, shuffled).accuracy(x_test, test),
    )


def readout(model) -> list:
    """Return the last blocks of a `LanguageModel`, from the end, that only map each position, such as normalization."""
    return [*itertools.takewhile(lambda block: isinstance(block, READOUT), reversed(model.blocks))]


def logit_lens(model: keras.Model, ids, layers: Sequence[str] | None = None) -> dict[str, np.ndarray]:
    """Return the logits that the end of a model makes of each layer's output.

    The model computes them, with the output of its last layer replaced by that of the layer: at the last one that
    changes nothing. Where layers add to a residual stream, as in a Transformer or Mamba, they show how a prediction
    comes about. Stacked LSTMs have no common basis: there, the logits of lower layers need not mean anything.

    ```python
    lens = logit_lens(model, tokenizer.encode("To be")[None])  # {"embedding": [1, 5, V], "block_0": ...}
    ```

    Args:
        model: A `LanguageModel`, or any Keras model if `layers` is given.
        ids: Its input, `[B, T]`.
        layers: Names of layers of one width, in the order of the computation: what follows the last one reads the
            output of each. None for the embedding and the blocks before the last normalization.

    Returns:
        Arrays `[B, T, V]` by name, in the order of the computation. If `layers` is None, layers of another width than
        the last one are left out, as the head cannot read them.

    Raises:
        ValueError: There is no layer, one does not exist or has another width than the last one, or the model is no
            `LanguageModel` and `layers` is None.
    """
    if layers is not None and not len(layers):
        raise ValueError("layers is empty; expected at least one name.")
    outputs = layer_outputs(model, ids, layers)
    if layers is None:
        outputs = {name: x for name, x in outputs.items() if name not in {block.name for block in readout(model)}}
        width = [*outputs.values()][-1].shape[-1]
        outputs = {name: x for name, x in outputs.items() if x.shape[-1] == width}
    last = [*(outputs if layers is None else layers)][-1]
    return {name: logits_given(model, ids, {last: x}) for name, x in outputs.items()}


def repeated_sequences(model, length: int | None = None, count: int = 16, seed: int = 0) -> np.ndarray:
    """Draw random sequences and repeat each.

    Args:
        model: A `LanguageModel`, for its vocabulary and context length; its document token is not drawn.
        length: n; unless given 24, or half of the context length if that is less.
        count: B.
        seed: Seed of the draws.

    Returns:
        int32 `[B, 2 n]`.

    Raises:
        ValueError: An argument is out of its range, or 2 n ids are more than the context length.
    """
    limit = (getattr(model, "context_length", None) or 2 * REPEATED_LENGTH) // 2
    length = min(REPEATED_LENGTH, limit) if length is None else checks.positive_integer("length", length)
    checks.positive_integer("count", count)
    if (getattr(model, "context_length", None) and length > limit) or length < 2:
        raise ValueError(f"length={length}; expected 2 to {limit}, half of the model's context length.")
    ids = np.random.default_rng(seed).choice(ordinary_tokens(model), size=(count, length))
    return np.concatenate([ids, ids], axis=1).astype("int32")


def ordinary_tokens(model) -> np.ndarray:
    """Return the ids of a model's vocabulary without its document token, where states would begin anew."""
    ids = np.arange(vocabulary_size(model))
    return ids[ids != getattr(model, "document_token", None)]


def induction_score(model: keras.Model, ids) -> float:
    """Return how much of the loss a repetition takes away.

    ```python
    score = induction_score(model, repeated_sequences(model))
    ```

    Args:
        model: Any model from ids `[B, T]` to logits `[B, T, V]`.
        ids: Integers `[B, 2 n]`, whose second half repeats the first.

    Returns:
        1 - loss(second half) / loss(first half); below 0 if the repetition misleads. The first id of each half does not
        count, as nothing can predict it.

    Raises:
        ValueError: The second half of `ids` is not the first.
    """
    ids = _checked(ids)
    losses = ops.convert_to_numpy(token_losses(model(ids[:, :-1], training=False), ids[:, 1:]))  # [B, 2 n - 1]
    n = ids.shape[1] // 2
    first, second = losses[:, : n - 1].mean(), losses[:, n:].mean()
    return float(1 - second / first) if first else 0.0  # of a model with one token


def prefix_matching_scores(model: keras.Model, ids) -> dict[str, np.ndarray]:
    """Return how much each attention head looks at what followed the same id before.

    Args:
        model: Any Keras model with attention layers of keras_seq or keras.layers.
        ids: Integers `[B, 2 n]`, whose second half repeats the first.

    Returns:
        `[H]` by the name of the attention layer, from 0 to 1; uniform attention has about 0.7 / n. Empty for a model
        without attention.

    Raises:
        ValueError: The second half of `ids` is not the first.
    """
    ids = _checked(ids)
    i = np.arange(ids.shape[1] // 2 - 1)
    weights = attention_weights(model, ids)
    return {name: maps[:, :, len(i) + 1 + i, i + 1].mean(axis=(0, 2)) for name, maps in weights.items()}


def _checked(ids):
    ids = np.asarray(ids)
    n = ids.shape[-1] // 2
    if ids.ndim != 2 or n < 2 or not np.array_equal(ids[:, :n], ids[:, n:]):
        raise ValueError(f"ids has shape {ids.shape}; expected [B, 2 n] with equal halves, as of repeated_sequences.")
    return ids
