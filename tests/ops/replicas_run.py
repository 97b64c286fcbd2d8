"""Train models on one device and on two virtual ones of `MirroredStrategy`; a process of its own.

python -m tests.ops.replicas_run     prints what differs, and exits with 1 if anything does
"""

import contextlib
import sys

import keras
import numpy as np
import tensorflow as tf

from keras_seq import layers
from keras_seq.evaluation import Perplexity, TokenCrossEntropy
from keras_seq.models import TransformerConfig
from keras_seq.training import OPTIMIZERS, guard
from keras_seq.training.optimizers import WarmupLinearDecay

RATES = {"sgd": 0.1, "adagrad": 0.1, "muon": 0.05, "normuon": 0.05}
ALL_OPTIONS = {
    "global_clipnorm": 0.05,
    "gradient_accumulation_steps": 2,
    "use_ema": True,
    "ema_momentum": 0.5,
    "loss_scale_factor": 8.0,
    "weight_decay": 0.1,
}
ids = np.random.default_rng(0).integers(1, 9, (11, 6))  # batches of 4, 4 and 3: an odd rest too
ids[3, 2:] = ids[7, 1:] = 0
NEXT = np.roll(ids, -1, 1) * (ids > 0)


def small():
    """A model of Keras's layers, with a mask and a frozen one."""
    return keras.Sequential(
        [
            keras.layers.Embedding(9, 8, mask_zero=True),
            keras.layers.Dense(8, "tanh"),
            keras.layers.Dense(8, trainable=False),
            keras.layers.Dense(9),
        ]
    )


def with_layers():
    """A model of anybody's, with layers of ours."""
    inputs = keras.Input((None,), dtype="int32")
    x = layers.LSTM(8, return_sequences=True)(keras.layers.Embedding(9, 8, mask_zero=True)(inputs))
    return keras.Model(
        inputs, keras.layers.Dense(9)(layers.TransformerBlock(2, 8, causal=True, attention_bias=False)(x))
    )


def language_model():
    """A model of ours."""
    config = TransformerConfig(embedding_dim=8, num_layers=1, num_heads=2, feed_forward_dim=8, context_length=6)
    return config.build_model(9)


def trained(model_fn, make_optimizer, loss=TokenCrossEntropy, poison=None):
    """Return history, scores, weights and the guard's counters of two epochs."""
    keras.utils.set_random_seed(0)
    model, optimizer = model_fn(), make_optimizer()
    model.compile(optimizer, loss(), weighted_metrics=[Perplexity(ignore_class=0)])
    weights = np.ones(ids.shape)
    if poison is not None:
        weights[poison] = np.nan
    history = model.fit(ids, NEXT, 4, 2, shuffle=False, verbose=0, sample_weight=weights).history
    scores = model.evaluate(ids, NEXT, 4, verbose=0)
    counters = [optimizer.iterations, optimizer.first_nonfinite_step, optimizer.gradient_norm]
    return [*history.values(), scores, *map(keras.ops.convert_to_numpy, [*counters, *model.weights])]


def optimizer(name, **options):
    """Return a function that makes it."""
    rate = RATES.get(name, 0.01)
    if options.pop("schedule", False):
        rate = WarmupLinearDecay(rate, 8, 2, 0.1)
    return lambda: OPTIMIZERS[name](rate, **options)


CASES = {name: {"make_optimizer": optimizer(name)} for name in OPTIMIZERS}
for each in ("adamw", "muon", "normuon"):
    CASES[f"{each}, all options"] = {"make_optimizer": optimizer(each, schedule=True, **ALL_OPTIONS)}
    CASES[f"{each}, NaN"] = {"make_optimizer": optimizer(each), "poison": (9, 3)}
CASES["muon, sum"] = {"make_optimizer": optimizer("muon"), "loss": lambda: TokenCrossEntropy(reduction="sum")}
CASES["layers"] = {"make_optimizer": optimizer("normuon"), "model_fn": with_layers}
CASES["language model"] = {"make_optimizer": optimizer("muon", **ALL_OPTIONS), "model_fn": language_model}


def differing() -> list[str]:
    """Return the names of the cases in which two devices end with other numbers than one."""
    names = []
    for name, case in CASES.items():
        case = {"model_fn": small, **case}
        try:
            one, two = (trained(**case) for _ in in_turn())
        except Exception as error:
            print(name, type(error).__name__, str(error)[-300:])
            names.append(name)
            continue
        for a, b in zip(one, two, strict=True):
            if not np.allclose(a, b, rtol=1e-4, atol=5e-4, equal_nan=True):
                print(name, np.abs(np.subtract(a, b)).max(), a if np.size(a) < 9 else "", b if np.size(b) < 9 else "")
                names.append(name)
                break
    return names


def in_turn():
    """Yield twice: without a strategy, and in the scope of one with two devices."""
    for strategy in (None, tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])):
        with contextlib.nullcontext() if strategy is None else strategy.scope():
            yield


if __name__ == "__main__":
    processor = tf.config.list_physical_devices("CPU")[0]
    tf.config.set_logical_device_configuration(processor, [tf.config.LogicalDeviceConfiguration()] * 2)
    guard.MIN_FUSED_PARAMS = 0  # else these models are too small for it
    sys.exit(", ".join(differing()) or 0)
