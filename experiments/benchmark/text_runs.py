"""Prepare what is not training: the sampling of texts, and the batches and tokenizers that read texts."""

import itertools

import keras
import numpy as np

from experiments.benchmark import models
from experiments.benchmark.case import Case
from keras_seq.data import PythonGeneratorWindows, RandomWindows, SequentialWindows, StatefulWindows, load_corpus
from keras_seq.generation import SamplingLoop
from keras_seq.ops.compiled import compiled
from keras_seq.tokenizers import CharacterTokenizer


def generation(case: Case, implementation: str):
    """Prepare the sampling of texts after a prompt of one id, with a cache or by reading the whole prefix each time."""
    model = models.keras_seq_model(case)
    if implementation == "keras_seq":
        sampling_loop, prompts = SamplingLoop(model), [[1]] * case.batch_size

        def run_steps(num_steps):
            for seed in range(num_steps):
                for _ in sampling_loop(prompts, case.sequence_length - 1, seed=seed):
                    pass

        return run_steps, {"tokens_per_step": case.batch_size * (case.sequence_length - 1)}

    last_logits = compiled(lambda ids: model(ids, training=False)[:, -1], model, reduce_retracing=True)

    def run_steps(num_steps):
        for length in num_steps * case.prefix_lengths:
            keras.ops.convert_to_numpy(last_logits(np.zeros((case.batch_size, length), "int32")))

    return run_steps, {"tokens_per_step": case.batch_size * len(case.prefix_lengths)}


def pipeline(case: Case, implementation: str):
    """Prepare an input pipeline: batches of windows of a text, or all of it encoded or decoded."""
    text = load_corpus("pydoc").text
    tokenizer = CharacterTokenizer.from_text(text)
    ids = tokenizer.encode(text)
    sizes = {"batch_size": case.batch_size, "sequence_length": case.sequence_length}
    iterables = {
        "CharacterTokenizer.encode": lambda: map(tokenizer.encode, itertools.repeat(text)),
        "CharacterTokenizer.decode": lambda: map(tokenizer.decode, itertools.repeat(ids)),
        "RandomWindows": lambda: RandomWindows(ids, **sizes).dataset(),
        "SequentialWindows": lambda: SequentialWindows(ids, **sizes).dataset(),
        "StatefulWindows": lambda: StatefulWindows(ids, **sizes).dataset(),
        "StatefulWindows with reset mask": lambda: StatefulWindows(ids, **sizes, reset_prob=0.25).stateful_dataset(),
        "PythonGeneratorWindows": lambda: PythonGeneratorWindows(ids, **sizes).dataset(),
    }
    iterator = iter(iterables[case.model]())

    def run_steps(num_steps):
        for _ in itertools.islice(iterator, num_steps):
            pass

    whole_text = case.model.startswith("CharacterTokenizer")
    return run_steps, {"tokens_per_step": len(text) if whole_text else case.tokens_per_step}
