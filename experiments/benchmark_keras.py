"""Ours and Keras's side of `experiments.benchmark`: layers of keras_seq, and keras.layers as they come.

Started by `experiments.benchmark_turns`. Ours is compiled as `keras_seq.training` does it; the other side is what
Keras does when it is told nothing but optimizer, loss and precision.
"""

import json
import resource
import sys
import time

import keras
import numpy as np
import tensorflow as tf

from experiments.benchmark_rows import Row
from keras_seq import models, training
from keras_seq.layers.attention import causal_attention
from keras_seq.models.flops import flops_per_token
from keras_seq.training.config import DTYPE_POLICIES


def ours(row: Row, at_once):
    """A compiled model of keras_seq that does `at_once` steps without coming back to Python."""
    if row.kind == "lstm":
        definition = models.LSTMConfig(embedding_dim=row.embedding_dim, units=row.units, num_layers=row.num_layers)
    else:
        definition = models.GPT2Config(
            embedding_dim=row.embedding_dim,
            num_layers=row.num_layers,
            num_heads=row.num_heads,
            feed_forward_dim=4 * row.embedding_dim,
            context_length=row.length,
        )
    model = definition.build_model(row.vocabulary_size, dtype=DTYPE_POLICIES[row.precision])
    train = training.TrainConfig(optimizer="adamw", learning_rate=1e-3, precision=row.precision, log_every=at_once)
    training.compile_model(model, train, total_steps=1_000_000, tokens_per_step=row.batch_size * row.length)
    return model


def keras_as_it_comes(row: Row):
    """The same of keras.layers, one step at a time."""
    keras.config.set_dtype_policy(DTYPE_POLICIES[row.precision])
    ids = keras.Input((row.length,), batch_size=row.batch_size, dtype="int32")
    lstm = row.kind == "lstm"
    embedding = (keras.layers.Embedding if lstm else keras.layers.ReversibleEmbedding)(
        row.vocabulary_size, row.embedding_dim
    )
    x = embedding(ids)
    if lstm:
        for _ in range(row.num_layers):
            x = keras.layers.LSTM(row.units, return_sequences=True)(x)
    else:
        positions = keras.layers.Embedding(row.length, row.embedding_dim)
        x = x + positions(0 * keras.ops.take(ids, [0], axis=0) + keras.ops.arange(row.length))  # [1, T, D]
        for _ in range(row.num_layers):
            x = _block(x, row)
        x = keras.layers.LayerNormalization()(x)
    logits = keras.layers.Dense(row.vocabulary_size)(x) if lstm else embedding(x, reverse=True)
    model = keras.Model(ids, keras.ops.cast(logits, "float32"))
    model.compile(
        keras.optimizers.AdamW(1e-3, weight_decay=0.0, global_clipnorm=1.0),
        keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        auto_scale_loss=False,
    )
    return model


def _block(x, row):
    """nanoGPT's block."""
    width = row.embedding_dim
    normal = keras.layers.LayerNormalization()(x)
    x = x + keras.layers.MultiHeadAttention(row.num_heads, width // row.num_heads)(normal, normal, use_causal_mask=True)
    hidden = keras.layers.Dense(4 * width)(keras.layers.LayerNormalization()(x))
    return x + keras.layers.Dense(width)(keras.activations.gelu(hidden, approximate=True))


def training_step(row: Row, by):
    """A function from a number of steps that does them, how many it does at least, and what there is to say of it."""
    # as an experiment would: a curve has a point every so many steps
    at_once = (25 if row.batch_size * row.length < 5000 else 1) if by == "ours" else 1
    model = ours(row, at_once) if by == "ours" else keras_as_it_comes(row)
    x, y = np.random.default_rng(0).integers(row.vocabulary_size, size=(2, row.batch_size, row.length)).astype("int32")
    options = tf.data.Options()
    options.autotune.enabled = False  # its thread lets the end of `fit` wait for up to as long as the training took
    batch = tf.data.Dataset.from_tensors((x, y)).repeat().with_options(options)
    about = {"parameters": model.count_params()}
    if by == "ours":
        about["flops_per_token"] = flops_per_token(model, row.length, training=True)

    def steps(number):
        model.fit(batch, steps_per_epoch=number, epochs=1, shuffle=False, verbose=0)

    return steps, at_once, about


def _keras_attention(q, k, v):
    return keras.ops.dot_product_attention(q, k, v, is_causal=True)


def attention_step(row: Row, by):
    """The same for causal attention alone."""
    shape = (row.batch_size, row.length, row.num_heads, row.embedding_dim // row.num_heads)
    q, k, v = (tf.cast(tf.random.normal(shape), row.precision) for _ in range(3))
    function = {"ours": causal_attention, "keras": _keras_attention}[by]

    @tf.function
    def step(q, k, v):
        with tf.GradientTape() as tape:
            tape.watch((q, k, v))
            total = tf.reduce_sum(tf.square(tf.cast(function(q, k, v), "float32")))
        return tape.gradient(total, (q, k, v))

    def steps(number):
        for _ in range(number):
            gradients = step(q, k, v)
        return gradients[0].numpy()

    # Scores and values, forward once and backward twice; of the T x T pairs a causal one needs half.
    return steps, 1, {"flops_per_token": 3 * 4 * row.length * row.embedding_dim // 2}


def main():
    """Warms up, then counts when told to."""
    given = json.loads(sys.argv[1])
    by, seconds = given.pop("by"), given.pop("seconds")
    row = Row(**given)
    steps, at_once, about = (attention_step if row.kind == "attention" else training_step)(row, by)
    steps(at_once)
    begun = time.perf_counter()
    steps(at_once)
    number = at_once * max(1, round(seconds / (time.perf_counter() - begun)))
    steps(number)
    print(json.dumps({**about, "tensorflow": tf.__version__, "keras": keras.__version__}), flush=True)
    for _ in sys.stdin:
        begun = time.perf_counter()
        steps(number)
        speed = number * row.batch_size * row.length / (time.perf_counter() - begun)
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        print(json.dumps({"tokens_per_second": speed, "peak_megabytes": peak}), flush=True)


if __name__ == "__main__":
    main()
