"""Run the keras_seq and keras.layers implementations of `experiments.benchmark`, as a worker process.

Started by `experiments.benchmark.workers`. The model of keras_seq is compiled by `keras_seq.training`; the reference
model of keras.layers is compiled with Keras's defaults, given optimizer, loss and precision.
"""

import json
import resource
import sys
import time

import keras
import numpy as np
import tensorflow as tf

from experiments.benchmark.cases import Case
from keras_seq import models, training
from keras_seq.layers.attention import causal_attention
from keras_seq.models.flops import flops_per_token
from keras_seq.training.config import DTYPE_POLICIES


def keras_seq_model(case: Case, steps_per_execution):
    """Build and compile the model of keras_seq.

    Args:
        case: The case to run.
        steps_per_execution: Steps that run without returning to Python.
    """
    if case.kind == "lstm":
        model_config = models.LSTMConfig(embedding_dim=case.embedding_dim, units=case.units, num_layers=case.num_layers)
    else:
        model_config = models.GPT2Config(
            embedding_dim=case.embedding_dim,
            num_layers=case.num_layers,
            num_heads=case.num_heads,
            feed_forward_dim=4 * case.embedding_dim,
            context_length=case.sequence_length,
        )
    model = model_config.build_model(case.vocabulary_size, dtype=DTYPE_POLICIES[case.precision])
    train = training.TrainConfig(
        optimizer="adamw", learning_rate=1e-3, precision=case.precision, log_every=steps_per_execution
    )
    training.compile_model(model, train, total_steps=1_000_000, tokens_per_step=case.batch_size * case.sequence_length)
    return model


def keras_reference_model(case: Case):
    """Build and compile the same model of keras.layers, with one step per execution."""
    keras.config.set_dtype_policy(DTYPE_POLICIES[case.precision])
    ids = keras.Input((case.sequence_length,), batch_size=case.batch_size, dtype="int32")
    lstm = case.kind == "lstm"
    embedding = (keras.layers.Embedding if lstm else keras.layers.ReversibleEmbedding)(
        case.vocabulary_size, case.embedding_dim
    )
    x = embedding(ids)
    if lstm:
        for _ in range(case.num_layers):
            x = keras.layers.LSTM(case.units, return_sequences=True)(x)
    else:
        positions = keras.layers.Embedding(case.sequence_length, case.embedding_dim)
        x = x + positions(0 * keras.ops.take(ids, [0], axis=0) + keras.ops.arange(case.sequence_length))  # [1, T, D]
        for _ in range(case.num_layers):
            x = _block(x, case)
        x = keras.layers.LayerNormalization()(x)
    logits = keras.layers.Dense(case.vocabulary_size)(x) if lstm else embedding(x, reverse=True)
    model = keras.Model(ids, keras.ops.cast(logits, "float32"))
    model.compile(
        keras.optimizers.AdamW(1e-3, weight_decay=0.0, global_clipnorm=1.0),
        keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        auto_scale_loss=False,
    )
    return model


def _block(x, case):
    """Apply the Transformer block of nanoGPT."""
    width = case.embedding_dim
    normal = keras.layers.LayerNormalization()(x)
    x = x + keras.layers.MultiHeadAttention(case.num_heads, width // case.num_heads)(
        normal, normal, use_causal_mask=True
    )
    hidden = keras.layers.Dense(4 * width)(keras.layers.LayerNormalization()(x))
    return x + keras.layers.Dense(width)(keras.activations.gelu(hidden, approximate=True))


def training_step(case: Case, implementation):
    """Prepare training steps on one batch.

    Args:
        case: The case to run.
        implementation: `"keras_seq"` or `"keras"`.

    Returns:
        A function that runs a given number of steps, the steps per execution, and the info on the model for the report.
    """
    is_keras_seq = implementation == "keras_seq"
    # as in an experiment, which logs every 25 steps or so
    steps_per_execution = (25 if case.batch_size * case.sequence_length < 5000 else 1) if is_keras_seq else 1
    model = keras_seq_model(case, steps_per_execution) if is_keras_seq else keras_reference_model(case)
    shape = (2, case.batch_size, case.sequence_length)
    x, y = np.random.default_rng(0).integers(case.vocabulary_size, size=shape).astype("int32")
    options = tf.data.Options()
    options.autotune.enabled = False  # the end of `fit` waits for its thread, for up to as long as the training took
    batch = tf.data.Dataset.from_tensors((x, y)).repeat().with_options(options)
    info = {"parameters": model.count_params()}
    if is_keras_seq:
        info["flops_per_token"] = flops_per_token(model, case.sequence_length, training=True)

    def run_steps(num_steps):
        model.fit(batch, steps_per_epoch=num_steps, epochs=1, shuffle=False, verbose=0)

    return run_steps, steps_per_execution, info


def _keras_attention(q, k, v):
    return keras.ops.dot_product_attention(q, k, v, is_causal=True)


def attention_step(case: Case, implementation):
    """Prepare forward and backward passes of causal attention alone.

    Args:
        case: The case to run.
        implementation: `"keras_seq"` or `"keras"`.

    Returns:
        A function that runs a given number of steps, the steps per execution, and the info for the report.
    """
    shape = (case.batch_size, case.sequence_length, case.num_heads, case.embedding_dim // case.num_heads)
    q, k, v = (tf.cast(tf.random.normal(shape), case.precision) for _ in range(3))
    function = {"keras_seq": causal_attention, "keras": _keras_attention}[implementation]

    @tf.function
    def step(q, k, v):
        with tf.GradientTape() as tape:
            tape.watch((q, k, v))
            total = tf.reduce_sum(tf.square(tf.cast(function(q, k, v), "float32")))
        return tape.gradient(total, (q, k, v))

    def run_steps(num_steps):
        for _ in range(num_steps):
            gradients = step(q, k, v)
        return gradients[0].numpy()

    # Scores and values, once forward and twice backward; causal attention needs half of the T x T pairs.
    return run_steps, 1, {"flops_per_token": 3 * 4 * case.sequence_length * case.embedding_dim // 2}


def main():
    """Warm up, then time a run for each line on stdin."""
    request = json.loads(sys.argv[1])
    implementation, seconds = request.pop("implementation"), request.pop("seconds")
    case = Case(**request)
    prepare = attention_step if case.kind == "attention" else training_step
    run_steps, steps_per_execution, info = prepare(case, implementation)
    run_steps(steps_per_execution)
    start_time = time.perf_counter()
    run_steps(steps_per_execution)
    num_steps = steps_per_execution * max(1, round(seconds / (time.perf_counter() - start_time)))
    run_steps(num_steps)
    print(json.dumps({**info, "tensorflow": tf.__version__, "keras": keras.__version__}), flush=True)
    for _ in sys.stdin:
        start_time = time.perf_counter()
        run_steps(num_steps)
        speed = num_steps * case.batch_size * case.sequence_length / (time.perf_counter() - start_time)
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        print(json.dumps({"tokens_per_second": speed, "peak_megabytes": peak}), flush=True)


if __name__ == "__main__":
    main()
