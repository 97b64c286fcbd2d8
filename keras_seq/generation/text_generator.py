"""From a prompt to text: the tokenizer around `decode.py`.

```python
text = generate(model, vocabulary, "ROMEO:", length=200, temperature=0.8, top_k=40, seed=1)
for piece in stream(model, vocabulary, "ROMEO:"):
    print(piece, end="", flush=True)
```
"""

import dataclasses
import functools
import itertools

import keras
import numpy as np
import tensorflow as tf

from keras_seq import checks
from keras_seq.generation.contrastive import contrastive_search
from keras_seq.generation.samplers import SamplingConfig
from keras_seq.generation.sampling_loop import SamplingLoop
from keras_seq.generation.search import beam_search
from keras_seq.generation.uncached_model import UncachedModel, UncachedSamplingLoop
from keras_seq.layers.introspection import check_tokenizer


class TextGenerator:
    """Text from one model; its step is compiled once for all calls with as many prompts.

    Args:
        model: a `LanguageModel`; or any causal `keras.Model` from ids `[B, T]` to logits `[B, T, V]`, whose texts take
            longer, for it reads all that is there for every token. On JAX and torch a `LanguageModel` is one of those.
        tokenizer: the `Vocabulary` or other tokenizer it was trained with.

    Raises:
        ValueError: the model is no such model or sees the future, the tokenizer is none or has another number of ids.
    """

    def __init__(self, model, tokenizer):
        _check("tokenizer", tokenizer, ("encode", "decode"), "a Vocabulary or another tokenizer")
        self.model, self.tokenizer = model, tokenizer
        steps = all(hasattr(model, part) for part in ("step", "get_initial_state", "context_length"))
        if steps and keras.backend.backend() == "tensorflow":
            check_tokenizer(tokenizer, model)
            self.decoder = SamplingLoop(model)
            self._step = tf.function(model.step, reduce_retracing=True)
        else:
            whole = UncachedModel(model)
            check_tokenizer(tokenizer, model, whole.vocabulary_size)
            self.decoder = UncachedSamplingLoop(whole)
            self._step = whole.step

    def __call__(self, prompt, length=500, temperature=1.0, seed=0, stop=(), **steps):
        """Each prompt with what comes after it.

        Args:
            prompt: a text of at least one token, or a list of such texts.
            length: new tokens; for a `Vocabulary`, characters.
            temperature: 0 takes the likeliest token, 1 draws from the model as it is.
            seed: the same seed gives the same texts. The n-th text of a list depends on (seed, n), not on the others.
            stop: a text or several: what is written ends before the first of them.
            **steps: top_k, top_p, min_p, typical_p, repetition_penalty, as `Sampling` has them.

        Returns:
            A text for a text, a list for a list.

        Raises:
            ValueError: an empty prompt, a character that the tokenizer does not know, a number out of its range, logits
                that are not finite.
        """
        if isinstance(prompt, str):
            return prompt + "".join(self.stream(prompt, length, temperature, seed, stop, **steps))
        if not isinstance(prompt, list | tuple):
            raise ValueError(f"prompt={prompt!r}; expected a text, or a list of texts.")
        return self._texts(list(prompt), length, temperature, seed, stop, steps)

    def stream(self, prompt, length=500, temperature=1.0, seed=0, stop=(), **steps):
        """Yields what comes after one prompt, piece by piece as it is written; arguments as for a call."""
        ids, sampling, stop = self._checked([prompt], length, temperature, seed, stop, steps)
        pieces = (piece[0].tolist() for piece in self.decoder(ids, length, sampling, seed))
        return self._pieces(ids[0], pieces, stop)

    def beam(self, prompt, length=100, width=4, length_penalty=0.0) -> str:
        """The prompt with the likeliest text of `length` tokens that beam search finds; see `beam_search`.

        Raises:
            ValueError: as for a call; more tokens than a model's context.
        """
        (ids,), _, _ = self._checked([prompt], length, 0.0, 0, (), {})
        context = self.decoder.context_length
        if len(ids) + length > context:
            raise ValueError(f"{len(ids)} + {length} tokens; beam search goes no further than context={context}.")
        if not length:
            return prompt
        found, _ = beam_search(
            self._step, self._state_after(ids[:-1]), ids[-1:], length, width=width, length_penalty=length_penalty
        )
        return prompt + self._after(ids, found[0, 0].numpy().tolist())

    def _state_after(self, ids):
        if isinstance(self.decoder, UncachedSamplingLoop):
            return tf.constant([ids], tf.int32)
        state = self.model.get_initial_state(1)
        if ids:
            _, state = self.model(np.array([ids]), state=state, training=False, return_state=True)
        return state

    def contrastive(self, prompt, length=100, top_k=4, alpha=0.6) -> str:
        """The prompt with what contrastive search writes after it; see `contrastive_search`."""
        (ids,), _, _ = self._checked([prompt], length, 0.0, 0, (), {})
        return prompt + self._after(ids, contrastive_search(self.model, ids, length, top_k, alpha))

    def _texts(self, prompts, length, temperature, seed, stop, steps):
        ids, sampling, stop = self._checked(prompts, length, temperature, seed, stop, steps)
        written = [[] for _ in ids]
        for piece in self.decoder(ids, length, sampling, seed):
            for row, new in zip(written, piece.tolist(), strict=True):
                row.append(new)
            if stop and all(self._ended(start, row, stop) for start, row in zip(ids, written, strict=True)):
                break
        rows = zip(prompts, ids, written, strict=True)
        return [prompt + "".join(self._pieces(start, row, stop)) for prompt, start, row in rows]

    def _ended(self, start, pieces, stop):
        whole = self._after(start, [*itertools.chain(*pieces)])
        return any(end in whole for end in stop)

    def _after(self, start, new):
        """The text of new ids after those of the prompt; what joins them belongs to it."""
        return self.tokenizer.decode(start + new)[len(self.tokenizer.decode(start)) :]

    def _pieces(self, start, pieces, stop):
        """The text of the pieces, each as soon as no stop can begin in it and no character is half there."""
        held = max(map(len, stop), default=1) - 1
        new, told = [], 0
        for piece in pieces:
            new += piece
            text = self._after(start, new)
            ends = [place for end in stop if (place := text.find(end)) >= 0]
            if ends:
                yield text[told : min(ends)]
                return
            ready = len(text.rstrip("\N{REPLACEMENT CHARACTER}")) - held
            if ready > told:
                yield text[told:ready]
                told = ready
        if new:
            yield self._after(start, new)[told:]

    def _checked(self, prompts, length, temperature, seed, stop, steps):
        """The ids of the prompts, the `Sampling`, and the stops as a tuple."""
        if not prompts:
            raise ValueError("There is no prompt; expected at least one.")
        if isinstance(length, bool) or not isinstance(length, int) or not 0 <= length <= checks.MAX_INT32:
            raise ValueError(f"length={length!r}; expected a whole number from 0 to {checks.MAX_INT32}.")
        if isinstance(seed, bool) or not isinstance(seed, int) or not 0 <= seed < 2**63:
            raise ValueError(f"seed={seed!r}; expected a whole number from 0 to 2**63 - 1.")
        ids = [self.tokenizer.encode(prompt).numpy().tolist() for prompt in prompts]
        for prompt, own in zip(prompts, ids, strict=True):
            if not own:
                raise ValueError(f"The prompt {prompt!r} is empty to the tokenizer; expected at least one token.")
        stop = (stop,) if isinstance(stop, str) else stop
        if not isinstance(stop, list | tuple) or not all(isinstance(end, str) and end for end in stop):
            raise ValueError(f"stop={stop!r}; expected a text of at least one character, or a list of such texts.")
        unknown = steps.keys() - {field.name for field in dataclasses.fields(SamplingConfig)}
        if unknown:
            raise ValueError(f"There is no option {min(unknown)!r}; expected those of Sampling, such as top_k.")
        return ids, SamplingConfig(temperature, **steps), tuple(stop)


def _check(name, value, parts, expected):
    if not all(hasattr(value, part) for part in parts):
        raise ValueError(f"{name}={value!r}; expected {expected}.")


@functools.lru_cache(maxsize=2)
def _cached_generator(model, tokenizer):
    """Compiled once for a model: the last two are remembered."""
    return TextGenerator(model, tokenizer)


def generate(model, tokenizer, prompt, length=500, **options):
    """The prompt, or each of a list, with `length` tokens after it; options as for a call of `Generator`."""
    return _cached_generator(model, tokenizer)(prompt, length, **options)


def stream(model, tokenizer, prompt, length=500, **options):
    """Yields what comes after the prompt, piece by piece; options as for a call of `Generator`."""
    return _cached_generator(model, tokenizer).stream(prompt, length, **options)
