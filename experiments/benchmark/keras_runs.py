"""Prepare what a worker times on a Keras backend, for keras_seq and for keras.layers: `(run_steps, info)` of a case.

run_steps(n)   do the work n times, and wait until it is done
info           tokens_per_step, and what the report says of the model
"""

import importlib.metadata
import itertools
import pathlib
import platform
import tempfile
import time

import keras
import numpy as np

import keras_seq
from experiments.benchmark.cases import RUNTIMES, Case
from experiments.benchmark.text import LEARNING_RATE, STEPS, Text, warmup_steps
from keras_seq import models, training
from keras_seq.data import RandomWindows, SequentialWindows, StatefulWindows, load_corpus
from keras_seq.data.pipeline import step_dataset
from keras_seq.generation import SamplingLoop
from keras_seq.models.counts import flops_per_token
from keras_seq.ops.attention import causal_attention
from keras_seq.ops.compiled import compiled
from keras_seq.saving import export
from keras_seq.tokenizers import CharacterTokenizer

BACKEND = keras.backend.backend()
DTYPE_POLICIES = {"float32": "float32", "bfloat16": "mixed_bfloat16"}
TOTAL_STEPS = 1_000_000  # at which the learning rate of steps on one batch would end


def prepare(case: Case, implementation: str):
    """Return `(run_steps, info)` of a case for "keras_seq", "keras" or "uncached"."""
    if case.model == "attention":
        return attention(case, implementation)
    kinds = {"as_run": text_training, "nanogpt": text_training, "generation": generation, "pipeline": pipeline}
    kinds["exports"] = exported_generation if implementation in RUNTIMES else generation
    return kinds.get(case.kind, training_steps)(case, implementation)


# Models


def keras_seq_model(case: Case) -> keras.Model:
    """Build the model of keras_seq, from ids `[B, T]` to logits `[B, T, V]`: nanoGPT's, or that of `compare`."""
    if case.model == "lstm":
        config = models.LSTMConfig(embedding_dim=case.embedding_dim, units=case.units, num_layers=case.num_layers)
        return config.build_model(case.vocabulary_size, dtype=DTYPE_POLICIES[case.precision])
    if case.model == "mamba2":  # at the sizes of `compare`
        return models.Mamba2Config().build_model(case.vocabulary_size, dtype=DTYPE_POLICIES[case.precision])
    sizes = {"embedding_dim": case.embedding_dim, "num_layers": case.num_layers, "num_heads": case.num_heads}
    sizes |= {"feed_forward_dim": 4 * case.embedding_dim, "context_length": case.sequence_length}
    if case.model == "gpt2":  # without biases, and with the exact GELU
        config = models.GPT2Config(**sizes, dropout=case.dropout, use_bias=False, activation="gelu")
    elif case.kind == "as_run":  # without convolutions, which the PyTorch models have not
        config = models.TransformerConfig(**sizes, kernel_size=None, use_output_gate=False)
    else:
        config = models.GPT2Config(**sizes)
    return config.build_model(case.vocabulary_size, dtype=DTYPE_POLICIES[case.precision])


def keras_model(case: Case) -> keras.Model:
    """Build the same model of keras.layers with default arguments; it sets Keras's dtype policy."""
    keras.config.set_dtype_policy(DTYPE_POLICIES[case.precision])
    ids = keras.Input((case.sequence_length,), batch_size=case.batch_size, dtype="int32")
    if case.model == "lstm":
        x = keras.layers.Embedding(case.vocabulary_size, case.embedding_dim)(ids)
        for _ in range(case.num_layers):
            x = keras.layers.LSTM(case.units, return_sequences=True)(x)
        logits = keras.layers.Dense(case.vocabulary_size)(x)
    else:
        embedding = keras.layers.ReversibleEmbedding(case.vocabulary_size, case.embedding_dim)
        positions = keras.layers.Embedding(case.sequence_length, case.embedding_dim)
        indices = 0 * keras.ops.take(ids, [0], axis=0) + keras.ops.arange(case.sequence_length)  # [1, T]
        x = embedding(ids) + positions(indices)
        for _ in range(case.num_layers):
            x = _block(x, case)
        logits = embedding(keras.layers.LayerNormalization()(x), reverse=True)
    return keras.Model(ids, keras.ops.cast(logits, "float32"))


def _block(x, case):
    """Apply the Transformer block of nanoGPT."""
    width = case.embedding_dim
    attention = keras.layers.MultiHeadAttention(case.num_heads, width // case.num_heads)
    normal = keras.layers.LayerNormalization()(x)
    x = x + attention(normal, normal, use_causal_mask=True)
    hidden = keras.layers.Dense(4 * width)(keras.layers.LayerNormalization()(x))
    return x + keras.layers.Dense(width)(keras.activations.gelu(hidden, approximate=True))


# Training


def training_steps(case: Case, implementation: str):
    """Prepare training steps on one batch; keras_seq is compiled as `keras_seq.training` does it."""
    shape = (2, case.batch_size, case.sequence_length)
    batch = np.random.default_rng(0).integers(case.vocabulary_size, size=shape).astype("int32")
    if implementation == "keras_seq":
        model = keras_seq_model(case)
        at_once = case.tokens_per_step < 5000 and BACKEND != "torch"  # as many steps as when logging
        train = training.TrainConfig("adamw", 1e-3, precision=case.precision, log_every=25 if at_once else 1)
        training.compile_model(model, train, TOTAL_STEPS, tokens_per_step=case.tokens_per_step)
        steps_per_execution = train.steps_per_execution
    else:
        model, steps_per_execution = keras_model(case), 1
        optimizer = keras.optimizers.AdamW(1e-3, weight_decay=0.0, global_clipnorm=1.0)
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        model.compile(optimizer, loss, auto_scale_loss=False)
    batches = _repeated(*batch) if BACKEND == "tensorflow" else step_dataset(lambda _: tuple(batch))

    def run_steps(num_steps):  # `fit` reads the last loss, so it waits for the device
        model.fit(batches, steps_per_epoch=num_steps, shuffle=False, verbose=0)

    info = {"parameters": model.count_params(), "steps_per_execution": steps_per_execution}
    if implementation == "keras_seq":
        info["flops_per_token"] = flops_per_token(model, case.sequence_length, training=True)
    return run_steps, {"tokens_per_step": case.tokens_per_step, **info}


def _repeated(x, y):
    """Return a tf.data.Dataset that repeats one batch."""
    import tensorflow as tf

    options = tf.data.Options()
    options.autotune.enabled = False  # the end of `fit` waits for its thread, for up to as long as the training took
    return tf.data.Dataset.from_tensors((x, y)).repeat().with_options(options)


def text_training(case: Case, implementation: str):
    """Prepare the training of `compare`, or nanoGPT's, whose learning rate is `torch_runs.warmup_and_cosine`."""
    text = Text(case)
    sizes = {**vars(case), "vocabulary_size": text.vocabulary_size}
    model = keras_seq_model(Case(**sizes))
    total_steps, options = case.steps or STEPS, {"tokens_per_step": case.tokens_per_step}
    if case.model == "gpt2":
        log_every = min(25, case.steps_per_validation) if case.steps else 25
        train = training.TrainConfig(
            "adamw", weight_decay=0.1, beta_2=0.99, precision=case.precision, log_every=log_every
        )
        peak, warmup = LEARNING_RATE, warmup_steps(total_steps)
        options["schedule"] = keras.optimizers.schedules.CosineDecay(
            peak / (warmup + 1), total_steps - warmup, alpha=0.1, warmup_target=peak, warmup_steps=warmup
        )
    else:
        optimizer = "normuon" if case.optimizer == "muon" else "adamw"
        train = training.TrainConfig(optimizer, use_ema=True, precision=case.precision)
    training_model, dataset_fn = training.fit_inputs(model, text.windows)
    training.compile_model(training_model, train, total_steps, **options)
    step = 0

    def run_steps(num_steps):
        nonlocal step
        batches = dataset_fn(step, step + num_steps)
        training_model.fit(batches, steps_per_epoch=num_steps, shuffle=False, verbose=0)
        step += num_steps

    def validate():
        x, y = text.validation_windows
        return {"val_loss": model.evaluate(x, y, batch_size=case.batch_size, verbose=0)}

    info = {"parameters": model.count_params(), "steps_per_execution": train.steps_per_execution}
    info |= {"validate": validate} if case.steps else {}
    info["flops_per_token"] = flops_per_token(model, case.sequence_length, training=True)
    return run_steps, {"tokens_per_step": case.tokens_per_step, **info}


def attention(case: Case, implementation: str):
    """Prepare forward and backward passes of causal attention alone, on q, k and v `[B, T, H, K]`."""
    shape = (3, case.batch_size, case.sequence_length, case.num_heads, case.embedding_dim // case.num_heads)
    q, k, v = keras.ops.convert_to_tensor(np.random.default_rng(0).standard_normal(shape), case.precision)
    step = gradients(causal_attention if implementation == "keras_seq" else _keras_attention)

    def run_steps(num_steps):
        for _ in range(num_steps):
            result = step(q, k, v)
        wait(result[0])
        return result

    # Scores and values, once forward and twice backward; causal attention needs half of the T x T pairs.
    flops = 3 * 4 * case.sequence_length * case.embedding_dim // 2
    return run_steps, {"tokens_per_step": case.tokens_per_step, "flops_per_token": flops}


def _keras_attention(q, k, v):
    return keras.ops.dot_product_attention(q, k, v, is_causal=True)


# What is not training


def generation(case: Case, implementation: str):
    """Prepare the sampling of texts after a prompt of one id, with a cache or by reading the whole prefix each time."""
    model = keras_seq_model(case)
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


def exported_generation(case: Case, implementation: str):
    """Prepare the sampling of a text by the steps of an exported file, in NumPy, as docs/onnx_generate.py does it."""
    format, *quantization = implementation.split("_")
    kind, suffix = {"onnx": (models.OnnxModel, ".onnx"), "litert": (models.LiteRTModel, ".tflite")}[format]
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder, f"model{suffix}")
        export(keras_seq_model(case), path, format, quantization="int8" if quantization else None)
        model, num_bytes = kind(path), path.stat().st_size
    draws = np.random.default_rng(0)

    def run_steps(num_steps):
        for _ in range(num_steps):
            ids, state = np.ones((1, 1), "int32"), model.get_initial_state(1)
            for _ in range(case.sequence_length - 1):
                logits, state = model.step(ids, state)
                weights = np.exp(logits[0] - logits.max()).cumsum()
                ids = np.array([[np.searchsorted(weights, draws.random() * weights[-1])]], "int32")

    return run_steps, {"tokens_per_step": case.sequence_length - 1, "file_bytes": num_bytes}


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
    }
    iterator = iter(iterables[case.model]())

    def run_steps(num_steps):
        for _ in itertools.islice(iterator, num_steps):
            pass

    whole_text = case.model.startswith("CharacterTokenizer")
    return run_steps, {"tokens_per_step": len(text) if whole_text else case.tokens_per_step}


# Backends


def gradients(function):
    """Return a compiled function from arrays to the gradients of the sum of squares of `function(*arrays)`."""
    if BACKEND == "torch":
        from experiments.benchmark.torch_runs import gradients

        return gradients(function)

    def total(*arrays):
        return keras.ops.sum(keras.ops.square(keras.ops.cast(function(*arrays), "float32")))

    if BACKEND == "jax":
        import jax

        return jax.jit(lambda *arrays: jax.grad(total, argnums=range(len(arrays)))(*arrays))

    import tensorflow as tf

    @tf.function
    def gradients(*arrays):
        with tf.GradientTape() as tape:
            tape.watch(arrays)
            value = total(*arrays)
        return tape.gradient(value, arrays)

    return gradients


def wait(array):
    """Wait until an array is computed."""
    keras.ops.convert_to_numpy(keras.ops.reshape(array, -1)[:1])  # one number, which needs all of them


def device() -> tuple[str, str]:
    """Return the platform, "cpu" or "gpu", and the name of the device."""
    if BACKEND == "jax":
        import jax

        return jax.local_devices()[0].platform, jax.local_devices()[0].device_kind
    if BACKEND == "torch":
        from experiments.benchmark.torch_runs import device

        return device()
    import tensorflow as tf

    gpus = tf.config.list_physical_devices("GPU")
    return ("gpu", tf.config.experimental.get_device_details(gpus[0]).get("device_name")) if gpus else ("cpu", "cpu")


def peak_bytes() -> int | None:
    """Return the peak memory of the GPU; None on a CPU."""
    if device()[0] == "cpu":
        return None
    if BACKEND == "jax":
        import jax

        return (jax.local_devices()[0].memory_stats() or {}).get("peak_bytes_in_use")
    if BACKEND == "torch":
        from experiments.benchmark.torch_runs import peak_bytes

        return peak_bytes()
    import tensorflow as tf

    return tf.config.experimental.get_memory_info("GPU:0")["peak"]


def describe_device(matrix_sizes: dict[str, int]) -> dict:
    """Return the device, versions, and the FLOP/s of a product of square matrices, whose size is by platform."""
    device_platform, name = device()
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
    wait(keras.ops.matmul(a, b))
    start_time = time.perf_counter()
    for _ in range(number):
        last = keras.ops.matmul(a, b)
    wait(last)
    return (time.perf_counter() - start_time) / number
