"""Generate text in a TensorFlow graph that holds the weights and the tokenizer's two lookup tables.

    generate(prompt, max_new_tokens, temperature, seed) -> text        the text of `keras_seq.generate`
    logits(text) -> [T, V]                                             row t predicts the character after character t

Positions are sampled one at a time. A model with a context length starts new caches where `sampling_loop.py` does.
"""

import tensorflow as tf

from keras_seq.generation.samplers import sample_token
from keras_seq.generation.sampling_loop import cache_stride, not_finite

PHILOX = 1  # TensorFlow's number of the algorithm


class ExportedTextGenerator(tf.Module):
    """Hold the two exported functions, `generate` and `logits`."""

    def __init__(self, model, tokenizer):
        super().__init__()
        self._model, self._tokenizer = model, tokenizer
        self.tables = tokenizer.tables
        text, real = tf.TensorSpec((), tf.string), tf.TensorSpec((), tf.float32)
        integer = tf.TensorSpec((), tf.int64)
        self.generate = tf.function(self._generate, input_signature=[text, integer, real, integer], autograph=False)
        self.logits = tf.function(self._logits, input_signature=[text], autograph=False)

    def _logits(self, text):
        ids = self._encode(text)
        if self._model.context_length is not None:
            tf.debugging.assert_less_equal(
                tf.size(ids),
                self._model.context_length,
                f"The text is longer than context_length={self._model.context_length}.",
            )
        return self._model(ids[None], training=False)[0]

    def _generate(self, prompt, max_new_tokens, temperature, seed):
        max_new_tokens = _assert_non_negative(max_new_tokens, "max_new_tokens")
        temperature, seed = _assert_non_negative(temperature, "temperature"), _assert_non_negative(seed, "seed")
        temperature = tf.debugging.assert_all_finite(temperature, "temperature: expected a finite number.")
        prompt_ids = self._encode(prompt)
        prompt_length = tf.size(prompt_ids)
        fits = tf.debugging.assert_less_equal(
            max_new_tokens, tf.int32.max - tf.cast(prompt_length, tf.int64), "max_new_tokens: expected fewer than 2^31."
        )
        with tf.control_dependencies([fits]):
            max_new_tokens = tf.cast(max_new_tokens, tf.int32)
        key, counter = tf.raw_ops.StatelessRandomGetKeyCounter(seed=tf.stack([seed, 0]))
        ids = tf.concat([prompt_ids, tf.zeros([max_new_tokens], tf.int32)], axis=0)

        def sample_step(t, ids, state):
            start = self._cache_start(t)
            if self._model.context_length is not None:
                is_new_cache = start > self._cache_start(t - 1)
                state = tf.cond(is_new_cache, lambda: self._state_after(ids[start : t - 1]), lambda: state)
            logits, next_state = self._model.step(ids[None, t - 1 : t], state)
            n = t - prompt_length
            # the n-th number of `stateless_uniform`: four have a counter
            at = counter + tf.cast(tf.stack([n // 4, 0]), tf.uint64)
            four = tf.raw_ops.StatelessRandomUniformV2(shape=[4], key=key, counter=at, alg=PHILOX, dtype=tf.float32)
            new = sample_token(logits, four[n % 4 : n % 4 + 1], {"temperature": temperature})
            return t + 1, tf.tensor_scatter_nd_update(ids, [[t]], new), self._with_static_shapes(next_state)

        state = self._state_after(ids[self._cache_start(prompt_length) : prompt_length - 1])
        end = prompt_length + max_new_tokens
        _, ids, _ = tf.while_loop(lambda t, *_: t < end, sample_step, (prompt_length, ids, state))
        finite = tf.debugging.assert_non_negative(ids, str(not_finite()))
        with tf.control_dependencies([finite]):
            return tf.strings.join([prompt, self._tokenizer.decode_tensor(ids[prompt_length:])])

    def _cache_start(self, t):
        """Return the position of the first id that id t is sampled from; see `sampling_loop.py`."""
        context_length = self._model.context_length
        if context_length is None:
            return tf.constant(0)
        stride = cache_stride(context_length)
        return tf.cast(tf.math.ceil(tf.maximum(0, t - context_length) / stride), tf.int32) * stride

    def _encode(self, text):
        ids = self._tokenizer.encode(text)
        not_empty = tf.debugging.assert_positive(tf.size(ids), "The text is empty; expected at least one character.")
        with tf.control_dependencies([not_empty]):
            return tf.identity(ids)

    def _state_after(self, ids):
        """Return the state after ids `[T]`, the initial state if T is 0."""
        initial_state = self._model.get_initial_state(1)

        def prefill():
            _, state = self._model(ids[None], state=initial_state, training=False, return_state=True)
            return self._with_static_shapes(state)

        return tf.cond(tf.size(ids) > 0, prefill, lambda: initial_state)

    def _with_static_shapes(self, state):
        """Set the static shapes of a state to those of the initial state, so that a loop can carry it."""
        initial_state = self._model.get_initial_state(1)
        return tf.nest.map_structure(lambda new, first: tf.ensure_shape(new, first.shape), state, initial_state)


def _assert_non_negative(number, name):
    """Return the number, with an assertion in the graph that it is at least 0."""
    with tf.control_dependencies([tf.debugging.assert_non_negative(number, f"{name}: expected at least 0.")]):
        return tf.identity(number)
