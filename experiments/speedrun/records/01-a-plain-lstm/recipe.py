"""The LSTM of version 0.1.0, wider: one layer of 512 units, Muon, float32, the text in stateful windows."""

from keras_seq import training
from keras_seq.data import StatefulWindows
from keras_seq.models import LSTMConfig

EPOCHS = 3.2
TRAIN = training.TrainConfig("muon", learning_rate=0.03)


def train(ids, vocabulary_size, seed):
    """Return a model from ids `[B, T]` to logits `[B, T, V]`, trained on ids `[N]`."""
    model = LSTMConfig(units=512, dropout=0.45).build_model(vocabulary_size, dtype=TRAIN.dtype_policy)
    windows = StatefulWindows(ids, batch_size=12, sequence_length=64, reset_prob=0.25, seed=seed)
    steps = max(1, round(EPOCHS * len(ids) / windows.tokens_per_step))
    training_model, batches = training.fit_inputs(model, windows)
    training.compile_model(training_model, TRAIN, steps, tokens_per_step=windows.tokens_per_step)
    training_model.fit(batches(0, steps), steps_per_epoch=steps, shuffle=False, verbose=0)
    training_model.optimizer.finalize_variable_values(training_model.trainable_variables)
    return model
