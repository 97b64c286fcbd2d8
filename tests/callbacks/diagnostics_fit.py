"""A `fit` with diagnostics, the same on every backend: `python -m tests.callbacks.diagnostics_fit FOLDER`."""

import sys

import keras
import numpy as np

from keras_seq.callbacks import AttentionMaps, EmbeddingProjector, GateSaturation, TokenTensorBoard
from keras_seq.layers import GRU, TransformerBlock
from keras_seq.tracking import Summaries

VOCABULARY, BATCH, LENGTH, STEPS = 7, 2, 5, 5


def fit(folder):
    """Train from weights and rows that NumPy draws, and write to a folder."""
    random = np.random.default_rng(0)
    ids = keras.Input((LENGTH,), dtype="int32")
    x = keras.layers.Embedding(VOCABULARY, 4, name="embedding")(ids)
    x = GRU(4, name="gru", return_sequences=True)(x)
    x = keras.layers.LSTM(4, name="keras_lstm", return_sequences=True)(x)
    x = TransformerBlock(num_heads=2, feed_forward_dim=8, causal=True, name="block")(x)
    model = keras.Model(ids, keras.layers.Dense(VOCABULARY)(x))
    for weight in model.trainable_weights:
        weight.assign(random.normal(scale=0.5, size=weight.shape))
    model.compile(keras.optimizers.SGD(0.3), keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    rows = random.integers(VOCABULARY, size=(STEPS * BATCH, LENGTH + 1))
    data = rows[:, :-1], rows[:, 1:]
    diagnostics = [
        AttentionMaps(rows[:2, :-1], tokens=list("abcde"), log_dir=folder),
        GateSaturation(rows[:2, :-1], log_dir=folder, update_freq=2),
        EmbeddingProjector(list("abcdefg"), folder),
    ]
    board = TokenTensorBoard(folder, tokens_per_step=1)
    board.write_settings({"model.name": "mixed", "train.learning_rate": 0.3}, model)
    model.fit(*data, batch_size=BATCH, epochs=2, shuffle=False, verbose=0, callbacks=[board, *diagnostics])
    board.write(11, Summaries({"val_loss": 1.0}, {"text": "To be"}, curves={"curve/0": 2.0}))


if __name__ == "__main__":
    fit(sys.argv[1])
