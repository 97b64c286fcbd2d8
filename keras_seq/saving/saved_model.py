"""A model and its vocabulary as one TensorFlow SavedModel, text in and text out, that needs no keras_seq to run.

    generate(prompt, length, temperature, seed) -> text        what `keras_seq.generate` writes with these options
    logits(text) -> [N, V]                                     row t: of what comes after character t

The two lookup tables and the weights are inside. Everything runs as a TensorFlow graph, one position at a time; a model
with a context starts new caches where `decode.py` does.
"""

import errno
import pathlib

import tensorflow as tf

from keras_seq.atomic_files import atomic_write
from keras_seq.generation.samplers import sample_token
from keras_seq.generation.sampling_loop import half, not_finite
from keras_seq.layers.introspection import check_tokenizer


class ExportedTextGenerator(tf.Module):
    """What is exported: the two functions.

    Args:
        model: a `LanguageModel`.
        vocabulary: the `Vocabulary` it was trained with; other tokenizers do not run inside TensorFlow.

    Raises:
        ValueError: another kind of tokenizer, or one of another number of ids.
    """

    def __init__(self, model, vocabulary):
        if not hasattr(vocabulary, "tables"):
            kind = type(vocabulary).__name__
            raise ValueError(
                f"The tokenizer is a {kind}; expected a Vocabulary of characters: only that runs in a graph."
            )
        check_tokenizer(vocabulary, model)
        super().__init__()
        self._model, self._vocabulary = model, vocabulary
        self.weights = [variable.value for variable in model.variables]  # what a SavedModel has to find
        self.tables = vocabulary.tables
        text, number = tf.TensorSpec((), tf.string), tf.TensorSpec((), tf.float32)
        whole = tf.TensorSpec((), tf.int64)
        self.generate = tf.function(self._generate, input_signature=[text, whole, number, whole])
        self.logits = tf.function(self._logits, input_signature=[text])

    def _logits(self, text):
        ids = self._ids(text)
        if self._model.context_length is not None:
            tf.debugging.assert_less_equal(
                tf.size(ids),
                self._model.context_length,
                f"The text is longer than the context of {self._model.context_length}.",
            )
        return self._model(ids[None], training=False)[0]

    def _generate(self, prompt, length, temperature, seed):
        length, temperature = _assert_non_negative(length, "length"), _assert_non_negative(temperature, "temperature")
        given = self._ids(prompt)
        count, length = tf.size(given), tf.cast(length, tf.int32)
        uniform = tf.random.stateless_uniform([length], tf.stack([seed, 0]), alg="philox")
        ids = tf.concat([given, tf.zeros([length], tf.int32)], axis=0)

        def write(t, ids, state):
            start = self._start(t)
            if self._model.context_length is not None:
                new_cache = start > self._start(t - 1)
                state = tf.cond(new_cache, lambda: self._state_after(ids[start : t - 1]), lambda: state)
            logits, after = self._model.step(ids[None, t - 1 : t], state)
            new = sample_token(logits, uniform[t - count : t - count + 1], {"temperature": temperature})
            return t + 1, tf.tensor_scatter_nd_update(ids, [[t]], new), self._as_initial(after)

        state = self._state_after(ids[self._start(count) : count - 1])
        _, ids, _ = tf.while_loop(lambda t, *_: t < count + length, write, (count, ids, state))
        finite = tf.debugging.assert_non_negative(ids, str(not_finite()))
        with tf.control_dependencies([finite]):
            return tf.strings.join([prompt, self._vocabulary.decode_tensor(ids[count:])])

    def _start(self, t):
        """Where the cache starts that id t is drawn from; see `decode.py`."""
        context = self._model.context_length
        if context is None:
            return tf.constant(0)
        return tf.cast(tf.math.ceil(tf.maximum(0, t - context) / half(context)), tf.int32) * half(context)

    def _ids(self, text):
        ids = self._vocabulary.encode(text)
        some = tf.debugging.assert_positive(tf.size(ids), "The text is empty; expected at least one character.")
        with tf.control_dependencies([some]):
            return tf.identity(ids)

    def _state_after(self, ids):
        """The state after ids `[T]`, of which there may be none."""
        initial = self._model.get_initial_state(1)

        def read():
            return self._as_initial(self._model(ids[None], state=initial, training=False, return_state=True)[1])

        return tf.cond(tf.size(ids) > 0, read, lambda: initial)

    def _as_initial(self, state):
        """A state with the shapes that are known of the initial one, so that a loop can carry it."""
        initial = self._model.get_initial_state(1)
        return tf.nest.map_structure(lambda new, first: tf.ensure_shape(new, first.shape), state, initial)


def _assert_non_negative(number, name):
    """The number, once it is known to be no less than zero."""
    with tf.control_dependencies([tf.debugging.assert_non_negative(number, f"{name}: expected 0 or more.")]):
        return tf.identity(number)


def export_saved_model(model, vocabulary, path):
    """Writes the SavedModel into the folder `path`, which is there as a whole or not at all.

    Raises:
        ValueError: as for `TextModel`; something is at `path` already.
        OSError: it cannot be written; the error names `path`.
    """
    path = pathlib.Path(path)
    if path.exists():
        raise ValueError(f"{path} is there already; expected the name of a new folder.")
    module = ExportedTextGenerator(model, vocabulary)
    try:
        with atomic_write(path) as temporary:
            temporary.mkdir()
            signatures = {"generate": module.generate, "logits": module.logits}
            tf.saved_model.save(module, str(temporary), signatures=signatures)
    except tf.errors.OpError as error:  # raised by TensorFlow for a full disk, for example
        raise OSError(errno.EIO, error.message.splitlines()[0], str(path)) from error
