"""Generate text: a tokenizer around the sampling loop."""

import dataclasses
import functools
import itertools
from collections.abc import Collection, Iterator

import numpy as np

from keras_seq import checks
from keras_seq.generation.constraints import ENDED, Constraint, constraint_rows
from keras_seq.generation.samplers import SamplingConfig
from keras_seq.generation.sampling_loop import SamplingLoop, check_fits
from keras_seq.generation.search import beam_search, contrastive_search
from keras_seq.generation.uncached_model import HostSamplingLoop, UncachedModel
from keras_seq.layers.introspection import check_tokenizer
from keras_seq.ops.compiled import compiled


class TextGenerator:
    """Generate text with one model; its step is compiled once for each number of prompts.

    ```python
    generator = TextGenerator(model, tokenizer)
    text = generator("ROMEO:", max_new_tokens=200, temperature=0.8)
    ```

    Args:
        model: A `LanguageModel`, or any causal `keras.Model` from ids `[B, T]` to logits `[B, T, V]`. The latter is
            slower: each new token takes a forward pass over all ids before it.
        tokenizer: The tokenizer that the model was trained with.

    Raises:
        ValueError: The model is not of that kind or not causal, or the tokenizer is not a tokenizer or has another
            vocabulary size.
    """

    def __init__(self, model, tokenizer):
        if not (hasattr(tokenizer, "encode") and hasattr(tokenizer, "decode")):
            raise ValueError(f"tokenizer={tokenizer!r}; expected a CharacterTokenizer or another tokenizer.")
        if hasattr(model, "decoder_start_token_id"):
            raise ValueError(
                f"{model.name} writes a target for a source; expected a model of one text. For this one there are "
                "keras_seq.generation.greedy and beam_search, from model.get_initial_state(source, capacity) on."
            )
        self.model, self.tokenizer, self._last_automaton = model, tokenizer, ()
        if all(hasattr(model, name) for name in ("step", "get_initial_state", "context_length")):
            check_tokenizer(tokenizer, model)
            self.sampling_loop = (HostSamplingLoop if getattr(model, "is_exported", False) else SamplingLoop)(model)
            self._step = compiled(model.step, model, reduce_retracing=True)  # that of an exported model as it is
        else:
            uncached = UncachedModel(model)
            check_tokenizer(tokenizer, model, uncached.vocabulary_size)
            self.sampling_loop = HostSamplingLoop(uncached)
            self._step = uncached.step

    def __call__(
        self,
        prompt: str | list[str],
        max_new_tokens: int = 500,
        temperature: float = 1.0,
        seed: int = 0,
        stop_strings: str | list[str] = (),
        stop_token_ids: Collection[int] = (),
        constraint: Constraint | None = None,
        **sampling_options,
    ) -> str | list[str]:
        """Return each prompt followed by sampled text.

        Args:
            prompt: A text of at least one token, or a list of such texts.
            max_new_tokens: Tokens to sample after each prompt, at least 0; characters for a `CharacterTokenizer`.
            temperature: Divisor of the logits, at least 0; 0 takes the likeliest token.
            seed: The same seed gives the same texts. The n-th text of a list depends on (seed, n) and its prompt only.
            stop_strings: A text or a list of texts. The generated text ends before the one that is
                whole first.
            stop_token_ids: Ids that end the generated text, and are not part of it.
            constraint: What the whole text after the prompt has to be: `choices`, `regex` or `json_schema` of
                `keras_seq.generation.constraints`. It ends where the model would leave the constraint.
            **sampling_options: `top_k`, `top_p`, `min_p`, `typical_p`, `repetition_penalty`; see `SamplingConfig`.

        Returns:
            One text for one prompt, a list for a list.

        Raises:
            ValueError: A prompt is empty or has a character that the tokenizer does not know, an argument is out of its
                range, or logits are not finite.
        """
        if not isinstance(prompt, str | list | tuple):
            raise ValueError(f"prompt={prompt!r}; expected a text, or a list of texts.")
        prompts = [prompt] if isinstance(prompt, str) else list(prompt)
        prompt_ids = self._encode(prompts, max_new_tokens)
        stops = self.checked_stops(stop_strings, stop_token_ids)
        sampling = _sampling_config(temperature, sampling_options)
        new_ids = [[] for _ in prompts]  # for each row, a list of lists of ids
        for columns in self._sample(prompt_ids, max_new_tokens, sampling, seed, constraint):
            for row, new in zip(new_ids, columns, strict=True):
                row.append(new[new >= 0].tolist())
            rows = zip(prompt_ids, new_ids, strict=True)
            if any(stops) and all(self._has_stopped(ids, new, *stops) for ids, new in rows):
                break
        rows = zip(prompts, prompt_ids, new_ids, strict=True)
        texts = [text + "".join(self._stream_text(ids, [[*itertools.chain(*new)]], *stops)) for text, ids, new in rows]
        return texts[0] if isinstance(prompt, str) else texts

    def stream(
        self,
        prompt: str,
        max_new_tokens: int = 500,
        temperature: float = 1.0,
        seed: int = 0,
        stop_strings: str | list[str] = (),
        stop_token_ids: Collection[int] = (),
        constraint: Constraint | None = None,
        **sampling_options,
    ) -> Iterator[str]:
        """Return an iterator over the text after one prompt, in parts as they are sampled.

        Arguments are those of a call, and are checked before the iterator is returned. Logits that are not finite
        raise a ValueError during iteration.
        """
        (ids,) = self._encode([prompt], max_new_tokens)
        stops = self.checked_stops(stop_strings, stop_token_ids)
        sampling = _sampling_config(temperature, sampling_options)
        columns = self._sample([ids], max_new_tokens, sampling, seed, constraint)
        return self._stream_text(ids, (new[0][new[0] >= 0].tolist() for new in columns), *stops)

    def beam(
        self,
        prompt: str,
        max_new_tokens: int = 100,
        num_beams: int = 4,
        length_penalty: float = 0.0,
        stop_token_ids: Collection[int] = (),
    ) -> str:
        """Return the prompt followed by the likeliest text that `beam_search` finds.

        Args:
            prompt: A text of at least one token; with `max_new_tokens` more, at most the model's context length.
            max_new_tokens: Tokens to add, at least 0.
            num_beams: Hypotheses to keep, at least 1.
            length_penalty: Exponent of the length in the score, at least 0.
            stop_token_ids: Ids that end the text, and are not part of it.

        Raises:
            ValueError: As for a call, or there are more tokens than the context length.
        """
        (ids,) = self._encode([prompt], max_new_tokens)
        _, stop_ids = self.checked_stops((), stop_token_ids)
        check_fits(len(ids), max_new_tokens, self.sampling_loop.context_length, self.model.name)
        if not max_new_tokens:
            return prompt
        start_ids, state = ids[-1:], self._state_after(ids[:-1])
        sequences, _ = beam_search(self._step, state, start_ids, max_new_tokens, stop_ids, num_beams, length_penalty)
        (new,) = _until_stop([sequences[0, 0].tolist()], stop_ids)
        return prompt + self._continuation(ids, new)

    def contrastive(
        self,
        prompt: str,
        max_new_tokens: int = 100,
        top_k: int = 4,
        alpha: float = 0.6,
        stop_token_ids: Collection[int] = (),
    ) -> str:
        """Return the prompt followed by the text of `contrastive_search`.

        Args:
            prompt: A text of at least one token; with `max_new_tokens` more, at most the model's context length.
            max_new_tokens: Tokens to add, at least 0.
            top_k: Candidates at each position, at least 1.
            alpha: Weight of the similarity to earlier positions, from 0 to 1.
            stop_token_ids: Ids that end the text, and are not part of it.

        Raises:
            ValueError: As for a call, there are more tokens than the context length, or the model is not a
                `LanguageModel`.
        """
        (ids,) = self._encode([prompt], max_new_tokens)
        _, stop_ids = self.checked_stops((), stop_token_ids)
        (new,) = _until_stop([contrastive_search(self.model, ids, max_new_tokens, top_k, alpha, stop_ids)], stop_ids)
        return prompt + self._continuation(ids, new)

    def _state_after(self, ids):
        if not hasattr(self.model, "get_initial_state"):
            return np.array([ids], "int32")
        state = self.model.get_initial_state(1)
        if ids:
            _, state = self.model(np.array([ids]), state=state, training=False, return_state=True)
        return state

    def _sample(self, prompt_ids, max_new_tokens, sampling, seed, constraint):
        """Return an iterator over columns of new ids `[B, n]`, until all texts have ended under a constraint."""
        checks.non_negative_integer("seed", seed)
        automaton = None if constraint is None else self._automaton(constraint)
        constraint_rows(automaton, len(prompt_ids), max_new_tokens)  # for its check, before the first id
        batches = self.sampling_loop(prompt_ids, max_new_tokens, sampling, seed, automaton=automaton)

        def until_ended():
            for columns in batches:
                yield columns
                if (columns[:, -1] == ENDED).all():
                    return

        return until_ended()

    def _automaton(self, constraint):
        """Return the automaton of a constraint over this tokenizer; the last one is kept."""
        if not isinstance(constraint, Constraint):
            raise ValueError(f"constraint={constraint!r}; expected a Constraint, such as regex('[0-9]+').")
        document_token = getattr(self.model, "document_token", None)
        last = self._last_automaton  # of whatever thread
        if last[:2] != (constraint, document_token):
            excluded = () if document_token is None else (document_token,)
            self._last_automaton = last = constraint, document_token, constraint.automaton(self.tokenizer, excluded)
        return last[2]

    def _has_stopped(self, prompt_ids, new_ids, stop_strings, stop_token_ids):
        new_ids = [*itertools.chain(*new_ids)]
        if stop_token_ids & {*new_ids}:
            return True
        text = self._continuation(prompt_ids, new_ids) if stop_strings else ""
        return any(stop in text for stop in stop_strings)

    def _continuation(self, prompt_ids, new_ids):
        """Decode the new ids together with the prompt's, so that text that joins the two is included."""
        return self.tokenizer.decode(prompt_ids + new_ids)[len(self.tokenizer.decode(prompt_ids)) :]

    def _stream_text(self, prompt_ids, parts, stop_strings, stop_token_ids):
        """Yield text once it is final: it cannot be part of a stop string and holds no incomplete UTF-8 character."""
        max_stop_overlap = max(map(len, stop_strings), default=1) - 1
        new_ids, text, emitted, prompt_length = [], "", 0, len(self.tokenizer.decode(prompt_ids))
        for ids in _until_stop(parts, stop_token_ids):
            new_ids += ids
            text = self.tokenizer.decode(prompt_ids + new_ids)[prompt_length:]
            # the stop that is whole first, whatever of the text is known
            ends = [(start + len(stop), start) for stop in stop_strings if (start := text.find(stop)) >= 0]
            if ends:
                yield text[emitted : min(ends)[1]]
                return
            final = len(text.rstrip("\N{REPLACEMENT CHARACTER}")) - max_stop_overlap
            if final > emitted:
                yield text[emitted:final]
                emitted = final
        if new_ids:
            yield text[emitted:]

    def checked_stops(self, stop_strings, stop_token_ids):
        """Return the stop strings as a tuple and the ids as a set."""
        stops = (stop_strings,) if isinstance(stop_strings, str) else stop_strings
        if not isinstance(stops, list | tuple) or not all(isinstance(stop, str) and stop for stop in stops):
            raise ValueError(f"stop_strings={stop_strings!r}; expected a non-empty text, or a list of such texts.")
        if not isinstance(stop_token_ids, Collection):
            raise ValueError(f"stop_token_ids={stop_token_ids!r}; expected a list of ids.")
        size = getattr(self.tokenizer, "vocabulary_size", checks.MAX_INT32)  # which a tokenizer of one's own may lack
        return tuple(stops), {checks.integer("stop_token_ids", id, 0, size - 1) for id in stop_token_ids}

    def _encode(self, prompts, max_new_tokens):
        """Return the ids of prompts."""
        if not prompts:
            raise ValueError("There is no prompt; expected at least one.")
        checks.integer("max_new_tokens", max_new_tokens, 0, checks.MAX_INT32)
        for prompt in prompts:
            if not isinstance(prompt, str):
                raise ValueError(f"prompt={prompt!r:.80}; expected a text.")
        prompt_ids = [self.tokenizer.encode(prompt).tolist() for prompt in prompts]
        for prompt, ids in zip(prompts, prompt_ids, strict=True):
            if not ids:
                raise ValueError(f"The prompt {prompt!r} is empty after tokenization; expected at least one token.")
        return prompt_ids


def _sampling_config(temperature, options):
    unknown = options.keys() - {field.name for field in dataclasses.fields(SamplingConfig)}
    if unknown:
        others = "max_new_tokens, seed, stop_strings, stop_token_ids, constraint"
        known = ", ".join(field.name for field in dataclasses.fields(SamplingConfig))
        raise ValueError(f"There is no option {min(unknown)!r}; expected one of {others}, {known}.")
    return SamplingConfig(temperature, **options)


def _until_stop(parts, stop_token_ids):
    """Yield lists of ids up to the first one that ends the text, which is left out."""
    for ids in parts:
        end = next((n for n, id in enumerate(ids) if id in stop_token_ids), None)
        yield ids[:end]
        if end is not None:
            return


@functools.lru_cache(maxsize=2)
def _cached_generator(model, tokenizer):
    """Return a `TextGenerator`; those of the last two models are kept, so that they stay compiled."""
    return TextGenerator(model, tokenizer)


def generate(model, tokenizer, prompt: str | list[str], max_new_tokens: int = 500, **options) -> str | list[str]:
    """Return the prompt, or each of a list of prompts, followed by sampled text.

    ```python
    text = generate(model, tokenizer, "ROMEO:", max_new_tokens=200, temperature=0.8, top_k=40, seed=1)
    ```

    The compiled step is cached for the last two models.

    Args:
        model: A `LanguageModel`, or any causal `keras.Model` from ids `[B, T]` to logits `[B, T, V]`, which is slower.
        tokenizer: The tokenizer that the model was trained with.
        prompt: A text of at least one token, or a list of such texts.
        max_new_tokens: Tokens to sample after each prompt, at least 0; characters for a `CharacterTokenizer`.
        **options: `temperature` (default 1.0; 0 takes the likeliest token), `seed` (default 0), `stop_strings` (a text
            or a list of texts; the text ends before the one that is whole first), `stop_token_ids`, `constraint` (such
            as `json_schema(...)`, what the new text has to be), and the logit filters `top_k`, `top_p`, `min_p`,
            `typical_p` and `repetition_penalty` (off by default; see `SamplingConfig`).

    Returns:
        One text for one prompt, a list for a list.

    Raises:
        ValueError: The model is not causal, the tokenizer has another vocabulary size, a prompt is empty or has a
            character that the tokenizer does not know, an option is unknown or out of its range, or logits are not
            finite.
    """
    return _cached_generator(model, tokenizer)(prompt, max_new_tokens, **options)


def stream(model, tokenizer, prompt: str, max_new_tokens: int = 500, **options) -> Iterator[str]:
    """Return an iterator over the text after a prompt, in parts as they are sampled.

    ```python
    for piece in stream(model, tokenizer, "ROMEO:"):
        print(piece, end="", flush=True)
    ```

    Args:
        model: As for `generate`.
        tokenizer: The tokenizer that the model was trained with.
        prompt: A text of at least one token.
        max_new_tokens: Tokens to sample, at least 0; characters for a `CharacterTokenizer`.
        **options: As for `generate`.

    Returns:
        An iterator over strings. Arguments are checked before it is returned.

    Raises:
        ValueError: As for `generate`; that logits are not finite, during iteration.
    """
    return _cached_generator(model, tokenizer).stream(prompt, max_new_tokens, **options)
