"""N-grams as a language model, and language models that learn what n-grams do not know.

    ngram_model(counts)                     logits = log p(next | the last n - 1 ids), of counted n-grams
    NGramResidual([that, model])            logits = model(ids) + (1 + gate(ids)) log p(next | the last n - 1 ids)

The second is a product of two experts, which is trained where the counts are given (Li et al., 2022, "Residual learning
of neural text generation with n-gram language model", arXiv:2210.14431): it needs a small model, and little training.
"""

import itertools

import keras
import numpy as np
from keras import ops

from keras_seq import checks
from keras_seq.layers.base.state import ExplicitState
from keras_seq.models.ensemble import Ensemble
from keras_seq.models.language_model import LanguageModel

__all__ = ["NGramResidual", "held_out_log_probabilities", "ngram_model"]

SMALLEST = float(np.finfo("float32").tiny)  # finite logs of counts with noise, too, as `assert_causal` adds it


@keras.saving.register_keras_serializable(package="keras_seq")
class IdsAsFloats(keras.layers.Layer):
    """Return ids `[B, T]` below `input_dim` as floats `[B, T, 1]`, exact up to 2^24."""

    def __init__(self, input_dim, **kwargs):
        super().__init__(**{**kwargs, "dtype": "float32"})
        self.input_dim = input_dim

    def call(self, ids):
        """Return the ids as floats."""
        return ops.cast(ids, self.compute_dtype)[..., None]

    def compute_output_shape(self, ids_shape):
        """Return `[B, T, 1]`."""
        return (*ids_shape, 1)

    def get_config(self):
        """Return the constructor's arguments, from which `from_config` builds an equal object."""
        return {**super().get_config(), "input_dim": self.input_dim}


@keras.saving.register_keras_serializable(package="keras_seq")
class NGramTable(ExplicitState):
    """Look up the log probabilities of the next id after the last n - 1 ids.

    The state is the last n - 1 ids `[B, n - 1]`, -1 where there were none. The n-grams are a trie, as in
    `KneserNeyNGrams`: node 0 is the root, and the children of node i are those after node `first[i]` up to node
    `first[i + 1]`, by rising ids.

    There are `num_ngrams` n-grams of all lengths, and `num_contexts` shorter than n, the empty one included. Inputs are
    ids as floats `[B, T, 1]`; NaN, an id out of its range, gives NaN.
    """

    def __init__(self, order, vocabulary_size, num_ngrams, num_contexts, **kwargs):
        super().__init__(**{**kwargs, "dtype": "float32"})
        self.order, self.vocabulary_size = order, vocabulary_size
        self.num_ngrams, self.num_contexts = num_ngrams, num_contexts

    def build(self, inputs_shape):
        """Create the weights, which `ngram_model` sets."""
        options = {"initializer": "zeros", "trainable": False}
        self.ids = self.add_weight(shape=(self.num_ngrams,), dtype="int32", name="ids", **options)
        self.first = self.add_weight(shape=(self.num_contexts + 1,), dtype="int32", name="first", **options)
        self.discounted = self.add_weight(shape=(self.num_ngrams,), name="discounted", **options)
        self.backoff = self.add_weight(shape=(self.num_contexts,), name="backoff", **options)

    def get_initial_state(self, batch_size):
        """Return the state before the first id."""
        return ops.full((batch_size, self.order - 1), -1.0)

    def compute_output_shape(self, inputs_shape):
        """Return `[B, T, V]`."""
        return (*inputs_shape[:-1], self.vocabulary_size)

    def call(self, inputs, state=None, mask=None, inputs_mask=None, return_state=False):
        """Compute log p `[B, T, V]`."""
        x, state, mask = self.prepare_inputs(inputs, state, inputs_mask if mask is None else mask)
        is_id = x == x
        ids = ops.cast(ops.concatenate([state, ops.where(is_id, x, -1.0)[..., 0]], axis=1), "int32")  # [B, n - 1 + T]
        if mask is None:
            log_p = self._log_probabilities(ids)
        else:  # padding goes to the front, where it is no context
            positions = ops.arange(ops.shape(ids)[1])
            is_padding = ops.pad(ops.logical_not(mask), [[0, 0], [self.order - 1, 0]])
            order = ops.argsort(ops.where(is_padding, positions - ops.shape(ids)[1], positions), axis=1)
            ids = ops.take_along_axis(ops.where(is_padding, -1, ids), order, axis=1)
            places = ops.argsort(order, axis=1)[:, self.order - 1 :] - (self.order - 1)
            log_p = self._log_probabilities(ids)
            log_p = ops.take_along_axis(log_p, ops.maximum(places, 0)[..., None], axis=1)
        log_p = ops.where(is_id, log_p, float("nan"))
        return (log_p, ops.cast(ids[:, ops.shape(x)[1] :], state.dtype)) if return_state else log_p

    def _log_probabilities(self, ids):
        """Compute log p `[B, T, V]` after each of the last T ids of `[B, n - 1 + T]`, -1 for none."""
        p = ops.full((), 1 / self.vocabulary_size)
        nodes = ops.zeros_like(ops.pad(ids, [[0, 0], [0, 1]]))  # the n-gram so far that starts at each place; the root
        for length in range(self.order):
            contexts = nodes[:, self.order - length :, None]  # those that end at the last T ids
            children = self._find(contexts, ops.arange(self.vocabulary_size))
            discounted = _take(self.discounted, ops.maximum(children - 1, 0))
            is_context = ops.logical_and(contexts >= 0, contexts < self.num_contexts)
            backoff = ops.where(is_context, _take(self.backoff, ops.where(is_context, contexts, 0)), 1.0)
            p = ops.where(children > 0, discounted, 0.0) + backoff * p
            nodes = self._find(nodes[:, :-1], ids[:, length:])
        return ops.log(ops.maximum(p, SMALLEST))

    def _find(self, parents, ids):
        """Return the child nodes of parent nodes by id, -1 where there is none."""
        first, stored = ops.convert_to_tensor(self.first), ops.convert_to_tensor(self.ids)
        is_context = ops.logical_and(parents >= 0, parents < self.num_contexts)
        parents = ops.where(is_context, parents, 0)
        begin, end = _take(first, parents), _take(first, parents + 1)
        node = begin + ops.zeros_like(ids)  # to become the last child with an id of at most `ids`
        for bit in reversed(range(self.vocabulary_size.bit_length())):
            ahead = node + (1 << bit)
            is_at_most = _take(stored, ops.minimum(ahead, self.num_ngrams) - 1) <= ids
            node = ops.where(ops.logical_and(ahead <= end, is_at_most), ahead, node)
        is_id = _take(stored, ops.maximum(node, 1) - 1) == ids
        return ops.where(ops.logical_and(ops.logical_and(is_context, node > begin), is_id), node, -1)


def _take(table, index):
    """Return the entries of a table `[E]` by an index of any shape, as rows, which can be exported to ONNX."""
    return ops.take(table[:, None], index, axis=0)[..., 0]


def ngram_model(ngrams, **kwargs) -> LanguageModel:
    """Return counted n-grams as a language model: `model(ids [B, T])` are log probabilities `[B, T, V]`.

    It has no trainable weights and computes in float32.

    Args:
        ngrams: `keras_seq.baselines.KneserNeyNGrams`.
        **kwargs: Those of `keras.Model`, such as `name`.

    Raises:
        ValueError: They are no `KneserNeyNGrams`.
    """
    if not hasattr(ngrams, "backoff"):
        raise ValueError(f"ngrams={ngrams!r:.80}; expected keras_seq.baselines.KneserNeyNGrams.")
    size, num_contexts = ngrams.vocabulary_size, len(ngrams.backoff)
    table = NGramTable(ngrams.order, size, len(ngrams.codes), num_contexts, name="table")
    head = keras.layers.Identity(dtype="float32", name="head")
    options = {"name": "ngrams", "dtype": "float32", **kwargs}
    model = LanguageModel(IdsAsFloats(size, name="ids"), [table], head, **options)
    model.build((None, None))
    first = np.searchsorted(ngrams.codes, np.arange(num_contexts + 1) * size)
    table.set_weights([ngrams.codes % size, first, ngrams.discounted, ngrams.backoff])
    return model


def held_out_log_probabilities(ids: np.ndarray, count, folds: int = 10) -> np.ndarray:
    """Return log p of the id after each id of a text, from counts of other parts of it: float16 `[N, V]`.

    N-grams that were counted in a text know it too well: a model that is trained on top of them there would not learn
    what they do not know of other texts.

    Args:
        ids: The training text, integers `[N]`.
        count: Function from ids to `KneserNeyNGrams`.
        folds: Number of parts, at least 2; those but one are counted to predict that one.

    Raises:
        ValueError: There are no ids, or fewer than 2 parts.
    """
    checks.integer("folds", folds, min_value=2)
    ids = np.asarray(ids)
    edges = np.linspace(0, len(ids), folds + 1).astype(int)
    parts = []
    for begin, end in itertools.pairwise(edges):  # the ids after those from begin to end - 1 are not counted
        ngrams = count(np.concatenate([ids[: begin + 1], ids[end + 1 :]]))
        first = max(0, begin - ngrams.order + 2)
        parts.append(np.log(ngrams.distributions(ids[first:end])[begin - first + 1 :]).astype("float16"))
    return np.concatenate(parts)


@keras.saving.register_keras_serializable(package="keras_seq")
class NGramResidual(Ensemble):
    """Add the logits of a model to the log probabilities of n-grams, times a gate that the model computes.

        logits = model(ids)[..., :V] + (1 + model(ids)[..., V]) log p

    ```python
    counts = keras_seq.baselines.KneserNeyNGrams(ids, 6, vocabulary_size)
    lstm = LSTMConfig(units=200).build_model(vocabulary_size + 1)
    model = NGramResidual([ngram_model(counts), lstm])
    ```

    The n-grams are counted; the model is trained by the loss of these logits, with log p of n-grams that
    have not counted what they predict, as experiments/shakespeare.py does (`held_out_log_probabilities`,
    `add_log_probabilities`).

    Args:
        members: The n-grams, a language model over V ids, and the model over V + 1.

    Raises:
        ValueError: There are not two members, or their vocabularies do not fit.
    """

    def check_sizes(self, sizes):
        """Raise unless the second member has one output more than the first."""
        if len(sizes) != 2 or sizes[1] != sizes[0] + 1:
            raise ValueError(f"members have {sizes} outputs; expected two members, with V and V + 1 outputs.")

    def combine(self, logits):
        """Add the log probabilities of the n-grams to the logits of the model."""
        return add_log_probabilities(ops.log_softmax(logits[0]), logits[1])


def add_log_probabilities(log_p, logits_and_gate):
    """Return logits `[..., V]` from log p `[..., V]` and the outputs of a model `[..., V + 1]`."""
    return logits_and_gate[..., :-1] + (1 + logits_and_gate[..., -1:]) * ops.cast(log_p, logits_and_gate.dtype)
