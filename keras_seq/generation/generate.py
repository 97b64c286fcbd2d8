"""A prompt goes in id by id, then every drawn id goes in to draw the next: `model.step`, one position at a time.

A recurrent model does so for ever. A model with a context of C positions, once its cache is full, starts a new one with
the last C / 2 ids and goes on from there.
"""

import math

import numpy as np
import tensorflow as tf

from keras_seq.generation.samplers import draw


class Generator:
    """Text from one model; its step is compiled once for all calls.

    ```python
    generator = Generator(model, vocabulary)
    text = generator("ROMEO:", length=200, temperature=0.8, top_k=40, seed=1)
    ```

    Args:
        model: a `LanguageModel`.
        vocabulary: the `Vocabulary` it was trained with.
    """

    def __init__(self, model, vocabulary):
        self.model = model
        self.vocabulary = vocabulary
        self._step = tf.function(model.step)

    def __call__(self, prompt, length=500, temperature=1.0, top_k=None, seed=0) -> str:
        """The prompt and `length` characters after it.

        Args:
            prompt: at least one character.
            length: new characters.
            temperature: 0 takes the likeliest character, 1 draws from the model as it is.
            top_k: draw among this many of the likeliest only; None: among all.
            seed: the same seed gives the same text.

        Raises:
            ValueError: an empty prompt, a character the vocabulary does not know, a number out of its range.
        """
        check(prompt, length, temperature, top_k, seed)
        random = np.random.default_rng(seed)
        ids = self.vocabulary.encode(prompt).numpy().tolist()
        new = len(ids)
        state, room, unread = *self._fresh(), ids
        for _ in range(length):
            if len(unread) > room:
                state, room = self._fresh()
                unread = ids[-max(1, room // 2) :]
            for token in unread:
                logits, state = self._step(tf.constant([[token]]), state)
                room -= 1
            ids.append(int(draw(logits, temperature, top_k, random)[0]))
            unread = ids[-1:]
        return prompt + self.vocabulary.decode(ids[new:])

    def _fresh(self):
        context = self.model.context
        return self.model.initial_state(1), math.inf if context is None else context


def check(prompt, length, temperature, top_k, seed):
    """Raises a `ValueError` that names what is out of its range."""
    if not prompt:
        raise ValueError("The prompt is empty; expected at least one character to start from.")
    if length < 0:
        raise ValueError(f"length={length}; expected 0 or more characters.")
    if not (temperature >= 0 and math.isfinite(temperature)):
        raise ValueError(f"temperature={temperature}; expected 0 or more.")
    if top_k is not None and top_k < 1:
        raise ValueError(f"top_k={top_k}; expected at least 1.")
    if seed < 0:
        raise ValueError(f"seed={seed}; expected 0 or more.")
