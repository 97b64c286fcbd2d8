"""NorMuon, weights averaged over steps, bfloat16, longer windows; 450 units for fewer steps."""

from keras_seq import training
from keras_seq.data import StatefulWindows
from keras_seq.models import LSTMConfig

EPOCHS = 3.4
TRAIN = training.TrainConfig("normuon", learning_rate=0.03, use_ema=True, precision="bfloat16")


def train(ids, vocabulary_size, seed):
    """Return a model from ids `[B, T]` to logits `[B, T, V]`, trained on ids `[N]`."""
    model = LSTMConfig(units=450, dropout=0.3).build_model(vocabulary_size, dtype=TRAIN.dtype_policy)
    windows = StatefulWindows(ids, batch_size=16, sequence_length=128, reset_prob=0.25, seed=seed)
    steps = max(1, round(EPOCHS * len(ids) / windows.tokens_per_step))
    training_model, batches = training.fit_inputs(model, windows)
    training.compile_model(training_model, TRAIN, steps, tokens_per_step=windows.tokens_per_step)
    training_model.fit(batches(0, steps), steps_per_epoch=steps, shuffle=False, verbose=0)
    training_model.optimizer.finalize_variable_values(training_model.trainable_variables)
    return model
