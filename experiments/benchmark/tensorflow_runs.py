"""Prepare what only TensorFlow can run: the training loop, generation and input pipelines of keras_seq."""

import itertools
import tempfile

import numpy as np
import tensorflow as tf

from experiments.benchmark import models
from experiments.benchmark.settings import Case
from keras_seq import training
from keras_seq.data import PythonGeneratorWindows, RandomWindows, SequentialWindows, StatefulWindows, load_corpus
from keras_seq.generation import SamplingLoop
from keras_seq.tokenizers import CharacterTokenizer
from keras_seq.tracking import Summaries

TOTAL_STEPS = 1_000_000  # at which the learning rate would end


def repeated(x, y) -> tf.data.Dataset:
    """Return a dataset that repeats one batch."""
    options = tf.data.Options()
    options.autotune.enabled = False  # the end of `fit` waits for its thread, for up to as long as the training took
    return tf.data.Dataset.from_tensors((x, y)).repeat().with_options(options)


def compile_for_training(model, case: Case) -> int:
    """Compile a model as `keras_seq.training` does, for small batches with as many steps at once as when logging."""
    steps_per_execution = 25 if case.batch_size * case.sequence_length < 5000 else 1
    train = training.TrainConfig(
        optimizer=case.optimizer, learning_rate=1e-3, precision=case.precision, log_every=steps_per_execution
    )
    training.compile_model(model, train, TOTAL_STEPS, tokens_per_step=case.batch_size * case.sequence_length)
    return steps_per_execution


def end_to_end(case: Case, implementation: str):
    """Prepare trainings on random windows: keras_seq in `fit_resumable`, keras.layers in `fit`."""
    tokens_per_step = case.batch_size * case.sequence_length
    ids = np.random.default_rng(0).integers(case.vocabulary_size, size=1_000_000)
    windows = RandomWindows(ids, case.batch_size, case.sequence_length)
    if implementation == "keras":
        model = models.keras_model(case)
        models.compile_with_keras(model, case)

        def run_steps(num_steps):
            model.fit(windows.dataset(0, num_steps), shuffle=False, verbose=0)

        return run_steps, {"tokens_per_step": tokens_per_step, "parameters": model.count_params()}

    model = models.keras_seq_model(case)
    train = training.TrainConfig(optimizer=case.optimizer, precision=case.precision)
    training.compile_model(model, train, TOTAL_STEPS, tokens_per_step=tokens_per_step)

    def run_steps(num_steps):
        with tempfile.TemporaryDirectory() as folder:
            training.fit_resumable(
                folder,
                model,
                windows.dataset,
                tokens_per_step,
                num_steps,
                train,
                lambda: Summaries({"val_loss": 0.0}),
                {},
            )

    steps_per_execution = train.steps_per_execution
    info = {"parameters": model.count_params(), "steps_per_execution": steps_per_execution}
    return run_steps, {"tokens_per_step": tokens_per_step, **info}


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

    signature = [tf.TensorSpec((None, None), tf.int32)]
    last_logits = tf.function(lambda ids: model(ids, training=False)[:, -1], input_signature=signature)

    def run_steps(num_steps):
        for length in num_steps * case.prefix_lengths:
            last_logits(tf.zeros((case.batch_size, length), tf.int32)).numpy()

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
    return run_steps, {"tokens_per_step": len(text) if whole_text else case.batch_size * case.sequence_length}
