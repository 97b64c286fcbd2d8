"""Build the models of a case on any Keras backend: that of keras_seq, and the same one of keras.layers as they come."""

import keras

from experiments.benchmark.case import Case
from keras_seq import models, training

TOTAL_STEPS = 1_000_000  # at which the learning rate would end
DTYPE_POLICIES = {"float32": "float32", "bfloat16": "mixed_bfloat16"}


def keras_seq_model(case: Case) -> keras.Model:
    """Build the model of keras_seq, from ids `[B, T]` to logits `[B, T, V]`."""
    if case.model == "lstm":
        config = models.LSTMConfig(embedding_dim=case.embedding_dim, units=case.units, num_layers=case.num_layers)
    else:
        config = models.GPT2Config(
            embedding_dim=case.embedding_dim,
            num_layers=case.num_layers,
            num_heads=case.num_heads,
            feed_forward_dim=4 * case.embedding_dim,
            context_length=case.sequence_length,
        )
    return config.build_model(case.vocabulary_size, dtype=DTYPE_POLICIES[case.precision])


def nanogpt_model(case: Case, vocabulary_size: int) -> keras.Model:
    """Build nanoGPT's model, which has no biases and the exact GELU."""
    config = models.GPT2Config(
        embedding_dim=case.embedding_dim,
        num_layers=case.num_layers,
        num_heads=case.num_heads,
        feed_forward_dim=4 * case.embedding_dim,
        context_length=case.sequence_length,
        dropout=case.dropout,
        use_bias=False,
        activation="gelu",
    )
    return config.build_model(vocabulary_size, dtype=DTYPE_POLICIES[case.precision])


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


def compile_for_training(model: keras.Model, case: Case) -> int:
    """Compile a model as `keras_seq.training` does, for small batches with as many steps at once as when logging."""
    at_once = case.tokens_per_step < 5000 and keras.backend.backend() != "torch"
    train = training.TrainConfig("adamw", 1e-3, precision=case.precision, log_every=25 if at_once else 1)
    training.compile_model(model, train, TOTAL_STEPS, tokens_per_step=case.tokens_per_step)
    return train.steps_per_execution


def compile_with_keras(model: keras.Model):
    """Compile a model with Keras's defaults, given AdamW and loss."""
    optimizer = keras.optimizers.AdamW(1e-3, weight_decay=0.0, global_clipnorm=1.0)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(optimizer, loss, auto_scale_loss=False)
