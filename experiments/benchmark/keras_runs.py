"""Prepare what a worker times on a Keras backend, for keras_seq and for keras.layers: `(run_steps, info)` of a case.

run_steps(n)   do the work n times, and wait until it is done
info           tokens_per_step, and what the report says of the model
"""

import importlib
import importlib.metadata
import platform
import time

import keras
import numpy as np

import keras_seq
from experiments.benchmark import models, nanogpt, text_runs
from experiments.benchmark.case import Case
from keras_seq import training
from keras_seq.data.pipeline import step_dataset
from keras_seq.models.counts import flops_per_token
from keras_seq.ops.attention import causal_attention

BACKEND = keras.backend.backend()
side = importlib.import_module(f"experiments.benchmark.{BACKEND}_side")


def prepare(case: Case, implementation: str):
    """Return `(run_steps, info)` of a case for "keras_seq", "keras" or "uncached"."""
    if case.model == "attention":
        return attention(case, implementation)
    if case.kind == "nanogpt":
        return nanogpt_training(case)
    prepare_kind = training_steps if case.kind in ("step", "sizes") else getattr(text_runs, case.kind)
    return prepare_kind(case, implementation)


def training_steps(case: Case, implementation: str):
    """Prepare training steps on one batch; keras_seq is compiled as `keras_seq.training` does it."""
    is_keras_seq, steps_per_execution = implementation == "keras_seq", 1
    model = models.keras_seq_model(case) if is_keras_seq else models.keras_model(case)
    shape = (2, case.batch_size, case.sequence_length)
    batch = np.random.default_rng(0).integers(case.vocabulary_size, size=shape).astype("int32")
    if is_keras_seq:
        steps_per_execution = models.compile_for_training(model, case)
    else:
        models.compile_with_keras(model)
    batches = side.repeated(*batch) if BACKEND == "tensorflow" else step_dataset(lambda _: tuple(batch))

    def run_steps(num_steps):  # `fit` reads the last loss, so it waits for the device
        model.fit(batches, steps_per_epoch=num_steps, shuffle=False, verbose=0)

    info = {"parameters": model.count_params(), "steps_per_execution": steps_per_execution}
    if is_keras_seq:
        info["flops_per_token"] = flops_per_token(model, case.sequence_length, training=True)
    return run_steps, {"tokens_per_step": case.tokens_per_step, **info}


def nanogpt_training(case: Case):
    """Prepare nanoGPT's training by Keras's `fit`; its learning rate is that of `torch_training.warmup_and_cosine`."""
    data = nanogpt.Data(case)
    model = models.nanogpt_model(case, data.vocabulary_size)
    train = training.TrainConfig(
        "adamw", weight_decay=0.1, beta_2=0.99, precision=case.precision, log_every=min(25, case.steps_per_validation)
    )
    peak, warmup = nanogpt.LEARNING_RATE, nanogpt.warmup_steps(case.steps)
    schedule = keras.optimizers.schedules.CosineDecay(
        peak / (warmup + 1), case.steps - warmup, alpha=0.1, warmup_target=peak, warmup_steps=warmup
    )
    training.compile_model(model, train, case.steps, schedule=schedule, tokens_per_step=case.tokens_per_step)
    step = 0

    def run_steps(num_steps):
        nonlocal step
        batches = data.windows.dataset(step, step + num_steps)
        model.fit(batches, steps_per_epoch=num_steps, shuffle=False, verbose=0)
        step += num_steps

    def validate():
        x, y = data.validation_windows
        return {"val_loss": model.evaluate(x, y, batch_size=case.batch_size, verbose=0)}

    info = {"parameters": model.count_params(), "validate": validate, "steps_per_execution": train.steps_per_execution}
    info["flops_per_token"] = flops_per_token(model, case.sequence_length, training=True)
    return run_steps, {"tokens_per_step": case.tokens_per_step, **info}


def attention(case: Case, implementation: str):
    """Prepare forward and backward passes of causal attention alone, on q, k and v `[B, T, H, K]`."""
    shape = (3, case.batch_size, case.sequence_length, case.num_heads, case.embedding_dim // case.num_heads)
    q, k, v = keras.ops.convert_to_tensor(np.random.default_rng(0).standard_normal(shape), case.precision)
    step = side.gradients(causal_attention if implementation == "keras_seq" else _keras_attention)

    def run_steps(num_steps):
        for _ in range(num_steps):
            gradients = step(q, k, v)
        side.wait(gradients[0])
        return gradients

    # Scores and values, once forward and twice backward; causal attention needs half of the T x T pairs.
    flops = 3 * 4 * case.sequence_length * case.embedding_dim // 2
    return run_steps, {"tokens_per_step": case.tokens_per_step, "flops_per_token": flops}


def _keras_attention(q, k, v):
    return keras.ops.dot_product_attention(q, k, v, is_causal=True)


def describe_device(matrix_sizes: dict[str, int]) -> dict:
    """Return the device, versions, and the FLOP/s of a product of square matrices, whose size is by platform."""
    device_platform, name = side.device()
    size = matrix_sizes.get(device_platform, matrix_sizes["gpu"])
    return {
        "platform": device_platform,
        "device": platform.processor() or platform.machine() if device_platform == "cpu" else name,
        "versions": {
            "python": platform.python_version(),
            **{"keras_seq": keras_seq.__version__, "keras": keras.__version__},
            BACKEND: importlib.metadata.version(BACKEND),
        },
        "matmul_flops": {dtype: _matmul_flops(dtype, size) for dtype in ("float32", "bfloat16")},
    }


def _matmul_flops(dtype, max_size) -> float:
    """Return the best of 5 series of products; matrices are smaller than `max_size` where that would take seconds."""
    size = min(256, max_size)
    while (seconds := _seconds_of_products(dtype, size, 1)) < 0.1 and 2 * size <= max_size:
        size *= 2
    return 2 * size**3 / min(seconds, *(_seconds_of_products(dtype, size, 3) for _ in range(5)))


def _seconds_of_products(dtype, size, number) -> float:
    """Return the mean over a number of products, after one more."""
    a, b = (keras.random.normal((size, size), dtype=dtype, seed=seed) for seed in range(2))
    side.wait(keras.ops.matmul(a, b))
    start_time = time.perf_counter()
    for _ in range(number):
        last = keras.ops.matmul(a, b)
    side.wait(last)
    return (time.perf_counter() - start_time) / number
