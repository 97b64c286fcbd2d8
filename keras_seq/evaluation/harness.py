"""Let EleutherAI's lm-evaluation-harness score a model of any kind: three methods (`pip install lm_eval`).

    loglikelihood           log p(continuation | context), and whether greedy generation would give it
    loglikelihood_rolling   log p(text), in windows as `score_text` reads it
    generate_until          text after a context, up to one of the stop strings

https://github.com/EleutherAI/lm-evaluation-harness

Beside TensorFlow and PyTorch's CUDA build, import `triton` before anything else: imported after TensorFlow, as torch
does on demand, it aborts Python (TensorFlow 2.21, triton 3.9).
"""

import itertools

import numpy as np
from keras import ops
from lm_eval.api.model import LM

from keras_seq import checks
from keras_seq.evaluation.evaluator import Evaluator
from keras_seq.evaluation.losses import token_losses
from keras_seq.generation import TextGenerator
from keras_seq.generation.sampling_loop import not_finite
from keras_seq.generation.uncached_model import UncachedModel
from keras_seq.ops.compiled import compiled
from keras_seq.tokenizers.base import token_offsets

FILTERS = ("top_k", "top_p", "min_p", "typical_p", "repetition_penalty")
NO_FILTER = {"top_k": 0, "min_p": 0}
COUNTS = ("max_gen_toks", "max_new_tokens", "max_tokens", "max_completion_tokens")  # names of the same, in tasks


class HarnessModel(LM):
    """A model and its tokenizer, for `lm_eval.simple_evaluate(model=...)`.

    ```python
    results = lm_eval.simple_evaluate(model=HarnessModel(model, tokenizer), tasks=["lambada_openai"])
    ```

    A context that is too long for the model loses its beginning, as in the harness's own models. A token that the
    tokenizer begins every text with is a context, never scored itself, and needs no `prefix_token_id` before it.
    """

    def __init__(self, model, tokenizer, stop_token_ids=(), prefix_token_id: int | None = None):
        super().__init__()
        if prefix_token_id is not None:
            checks.integer("prefix_token_id", prefix_token_id, 0, tokenizer.vocabulary_size - 1)
        self.model, self.tokenizer = model, tokenizer
        self.generator = TextGenerator(model, _NeverEmpty(tokenizer, prefix_token_id))
        self.evaluator = Evaluator(model)
        self.stop_token_ids, self.prefix_token_id = self.generator.checked_stops((), stop_token_ids)[1], prefix_token_id
        self._logits = compiled(lambda ids: model(ids, training=False), model, reduce_retracing=True)
        self.context_length = getattr(model, "context_length", None)
        if not hasattr(model, "get_initial_state"):
            uncached = UncachedModel(model)  # which pads ids to a fixed length
            self._logits, self.context_length = uncached.logits, uncached.context_length

    def loglikelihood(self, requests, disable_tqdm: bool = False) -> list[tuple[float, bool]]:
        """Return log p(continuation | context) in nats, and whether each of its tokens is the likeliest.

        Where the end of the context and the beginning of the continuation are one token, that token is scored, too.
        """
        return [self._score(*request.args) for request in requests]

    def loglikelihood_rolling(self, requests, disable_tqdm: bool = False) -> list[float]:
        """Return log p(text) in nats: of all tokens, or without a `prefix_token_id` of all but the first."""
        return [self._score_text(*request.args) for request in requests]

    def generate_until(self, requests, disable_tqdm: bool = False) -> list[str]:
        """Return the text after each context, up to the first of its stop strings.

        It is greedy unless `do_sample` is set, or, where `do_sample` is not given, a `temperature`.

        A request that comes again, as for pass@k, is answered by another sample.
        """
        return [self._generate(*request.args, seed) for seed, request in enumerate(requests)]

    def _ids(self, text):
        """Return the ids of a text, without those that the tokenizer adds at its end, and how many it adds before."""
        ids, offsets = token_offsets(self.tokenizer, text)
        with_text = np.flatnonzero(offsets[:, 1] > offsets[:, 0])
        if not len(with_text):
            return ids.tolist(), len(ids)
        return ids[: with_text[-1] + 1].tolist(), int(with_text[0])

    def _score(self, context, continuation):
        if not continuation:
            return 0.0, True
        stripped = context.rstrip()  # white space between the two is the continuation's: " word" may be one token
        start = self._ids(stripped)[0] if stripped else []
        ids, num_added = self._ids(context + continuation)
        # fewer than those of the context where its end is one token with the continuation's beginning
        shared = len([*itertools.takewhile(lambda pair: pair[0] == pair[1], zip(start, ids, strict=False))])
        shared = max(shared, num_added)
        if not shared:
            ids, shared = self._prefixed(ids, num_added), 1
            if len(ids) < 2 or self.prefix_token_id is None:
                raise ValueError(
                    "The context is empty, or one token with what follows; expected a longer text, or a HarnessModel "
                    "with a prefix_token_id."
                )
        count, limit = len(ids) - shared, self.context_length or len(ids)
        if not 1 <= count <= limit:
            raise ValueError(f"The continuation {continuation!r:.80} has {count} tokens; expected 1 to {limit}.")
        ids = ids[-limit - 1 :]
        logits = ops.convert_to_numpy(self._logits(np.array([ids[:-1]], "int32")))[0, -count:]
        targets = np.array(ids[-count:], "int32")
        losses = ops.convert_to_numpy(token_losses(logits[None], targets[None]))
        if not np.isfinite(losses).all():
            raise not_finite()
        return -float(losses.sum(dtype="float64")), bool((logits.argmax(-1) == targets).all())

    def _prefixed(self, ids, num_added):
        """Return ids after the prefix, unless the tokenizer or the text itself begins with such a token."""
        has_one = self.prefix_token_id is None or num_added or ids[:1] == [self.prefix_token_id]
        return ids if has_one else [self.prefix_token_id, *ids]

    def _score_text(self, text):
        num_added = self._ids(text)[1]
        ids = np.array(self._prefixed(self.tokenizer.encode(text).tolist(), num_added), "int32")
        if len(ids) < 2:
            raise ValueError(f"The text {text!r:.80} has no token that follows another one; expected a longer text.")
        losses = self.evaluator.streaming_token_losses(ids)
        if not np.isfinite(losses).all():
            raise not_finite()
        return -float(losses.sum(dtype="float64"))

    def _generate(self, context, options, seed):
        if not context and not len(self.generator.tokenizer.encode(context)):
            raise ValueError("The context is empty; expected a text, or a HarnessModel with a prefix_token_id.")
        until = options.get("until") or ()
        until = (until,) if isinstance(until, str) else tuple(until)
        temperature, do_sample = options.get("temperature"), options.get("do_sample")
        do_sample = bool(temperature) if do_sample is None else do_sample
        temperature = (1.0 if temperature is None else temperature) if do_sample else 0.0
        stops = {"stop_strings": [*filter(None, until)], "stop_token_ids": self.stop_token_ids}
        filters = {name: options[name] for name in FILTERS if options.get(name) not in (None, NO_FILTER.get(name))}
        count = next((options[name] for name in COUNTS if options.get(name) is not None), 256)
        return "".join(self.generator.stream(context, count, temperature, seed, **stops, **filters))


class _NeverEmpty:
    """A tokenizer that gives the prefix for a text without tokens."""

    def __init__(self, tokenizer, prefix_token_id):
        self.tokenizer, self.prefix_token_id = tokenizer, prefix_token_id
        self.vocabulary_size, self.decode = tokenizer.vocabulary_size, tokenizer.decode

    def encode(self, text):
        """Return the ids of a text, or of no text that of the prefix."""
        ids = self.tokenizer.encode(text)
        return ids if len(ids) or self.prefix_token_id is None else np.array([self.prefix_token_id], "int32")
