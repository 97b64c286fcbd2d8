"""N-grams and an LSTM of 160 units, on TensorFlow, with fewer steps.

logits = LSTM + (1 + gate) log p of Kneser-Ney n-grams, as before. The LSTM trains on n-grams of the other nine tenths
of the text, as those of all of the text know each character that they predict.
"""

import itertools

import keras
import numpy as np
from keras import ops

from keras_seq import training
from keras_seq.data import StatefulWindows
from keras_seq.data.pipeline import step_dataset
from keras_seq.models import LSTMConfig

ORDER, FOLDS = 5, 10  # characters of a context; parts of the text, each predicted from the counts of the others
EPOCHS = 2.4
TRAIN = training.TrainConfig("normuon", learning_rate=0.03, use_ema=True, precision="bfloat16")


def codes_of_contexts(ids, vocabulary_size: int, order: int):
    """Yield a code of the last 0, 1, ..., `order` ids before each position of ids `[N]` that has so many."""
    codes = np.zeros(len(ids) - order, "int64")
    yield codes
    for n in range(order):
        codes = codes + (ids[order - 1 - n : len(ids) - 1 - n] + 1) * (vocabulary_size + 1) ** n
        yield codes


class KneserNey:
    """Interpolated Kneser-Ney counts of a text, from which those of a part can be taken out again."""

    def __init__(self, ids, vocabulary_size: int, order: int):
        ids = ids.astype("int64")
        self.size, targets = vocabulary_size, ids[order:]
        self.contexts, self.rows, self.entries, self.lower_entries = [], [], [], []
        self.index = None  # of each position, among the entries of the longest contexts
        for codes in codes_of_contexts(ids, vocabulary_size, order):
            contexts, rows = np.unique(codes, return_inverse=True)
            entries, first, index = np.unique(rows * vocabulary_size + targets, return_index=True, return_inverse=True)
            if self.contexts:
                self.lower_entries.append(self.index[first])
            self.contexts.append(contexts)
            self.rows.append(rows)
            self.entries.append(entries)  # context and id, as an index into a dense table
            self.index = index

    def tables(self, part=slice(0)):
        """Return p of each id after each context, a table `[contexts, V]` a length, without the positions of a part."""
        num = len(self.entries[-1])
        counts = [np.bincount(self.index, minlength=num) - np.bincount(self.index[part], minlength=num)]
        for entries, lower in zip(self.entries[-2::-1], self.lower_entries[::-1], strict=True):
            counts.append(np.bincount(lower[counts[-1] > 0], minlength=len(entries)))  # different ids before
        p, result = np.full((1, self.size), 1 / self.size, "float32"), []
        for length, count in enumerate(counts[::-1]):
            contexts, shape = self.contexts[length], (len(self.contexts[length]), self.size)
            modulus = (self.size + 1) ** max(0, length - 1)
            lower = p[np.searchsorted(self.contexts[length - 1], contexts % modulus)] if length else p
            once, twice = (count == 1).sum(), (count == 2).sum()
            discount = once / (once + 2 * twice) if once and twice else 0.5
            row = self.entries[length] // self.size
            total = np.bincount(row, count, len(contexts)).astype("float32")[:, None]
            types = np.bincount(row, count > 0, len(contexts)).astype("float32")[:, None]
            p = lower * np.where(total > 0, np.float32(discount) * types / np.maximum(total, 1), 1)
            p = np.broadcast_to(p, shape).copy()
            taken = np.maximum(count - discount, 0) / np.maximum(total[row, 0], 1)
            p.reshape(-1)[self.entries[length]] += taken.astype("float32")
            result.append(p)
        return result

    def held_out(self, folds: int) -> np.ndarray:
        """Return log p at each position after the first context, `[N - order, V]`, from the counts of other folds."""
        edges = np.linspace(0, len(self.index), folds + 1).astype(int)
        parts = [slice(*edge) for edge in itertools.pairwise(edges)]
        return np.concatenate([np.log(self.tables(part)[-1][self.rows[-1][part]]).astype("float16") for part in parts])


@keras.saving.register_keras_serializable("speedrun")
class NGrams(keras.layers.Layer):
    """Look up log p of the next id `[B, T, V]` after the longest context of ids `[B, T]` that was counted."""

    def __init__(self, num_contexts, vocabulary_size, order, **kwargs):
        super().__init__(trainable=False, **kwargs)
        self.order, self.base = order, vocabulary_size + 1
        self.codes = self.add_weight(shape=(num_contexts,), dtype="int32", trainable=False, name="codes")
        self.table = self.add_weight(shape=(num_contexts, vocabulary_size), trainable=False, name="table")

    def call(self, ids):
        """Return log p."""
        shape = ops.shape(ids)
        code = row = ops.zeros((shape[0] * shape[1],), "int32")
        for n in range(self.order):
            earlier = ops.pad(ids + 1, [[0, 0], [n, 0]])[:, : shape[1]]
            code = code + ops.reshape(earlier, (-1,)) * self.base**n
            index = ops.minimum(ops.searchsorted(self.codes, code), self.codes.shape[0] - 1)
            row = ops.where(ops.take(self.codes, index) == code, index, row)
        return ops.reshape(ops.take(self.table, row, axis=0), (*shape, self.table.shape[1]))


@keras.saving.register_keras_serializable("speedrun")
class Combine(keras.layers.Layer):
    """Add (1 + gate) log p to logits; the gate is the last column of `[B, T, V + 1]`."""

    def call(self, logits_and_gate, log_p):
        """Return logits `[B, T, V]`."""
        return logits_and_gate[..., :-1] + (1 + logits_and_gate[..., -1:]) * ops.cast(log_p, "float32")


def train(ids, vocabulary_size, seed):
    """Return a model from ids `[B, T]` to logits `[B, T, V]`, trained on ids `[N]`."""
    counts = KneserNey(ids, vocabulary_size, ORDER)
    log_p = counts.held_out(FOLDS)

    lstm = LSTMConfig(units=160, dropout=0.05).build_model(vocabulary_size + 1, dtype=TRAIN.dtype_policy)
    windows = StatefulWindows(ids[ORDER - 1 :], batch_size=32, sequence_length=64, reset_prob=0.25, seed=seed)
    steps = max(1, round(EPOCHS * len(ids) / windows.tokens_per_step))
    stateful, _ = training.fit_inputs(lstm, windows)
    combine = Combine(dtype="float32")
    given = keras.Input((windows.sequence_length, vocabulary_size), batch_size=windows.batch_size, dtype="float16")
    training_model = keras.Model([*stateful.inputs, given], combine(stateful.output, given))

    def batch(step):
        x, y = windows.batch(step)
        positions = windows.starts(step)[:, None] + np.arange(windows.sequence_length)
        return (x, windows.reset_mask(step), log_p[positions]), y

    training.compile_model(training_model, TRAIN, steps, tokens_per_step=windows.tokens_per_step)
    training_model.fit(step_dataset(batch, 0, steps), steps_per_epoch=steps, shuffle=False, verbose=0)
    training_model.optimizer.finalize_variable_values(training_model.trainable_variables)

    codes = np.concatenate(counts.contexts)
    order = np.argsort(codes)
    ngrams = NGrams(len(codes), vocabulary_size, ORDER, dtype="float32")
    ngrams.set_weights([codes[order], np.log(np.concatenate(counts.tables())[order])])
    inputs = keras.Input((None,), dtype="int32")
    return keras.Model(inputs, combine(lstm(inputs), ngrams(inputs)))
