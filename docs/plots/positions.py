"""Plot the images of docs/positions.md."""

import keras
import numpy as np
from keras import ops

from keras_seq.layers import (
    AlibiPositions,
    LearnedPositions,
    MultiHeadSelfAttention,
    PositionalEncoding,
    RotaryPositions,
)
from keras_seq.layers.attention.positions import sinusoids
from plots import load_results, subplots

TRAIN_LENGTH, TEST_LENGTH, DELAY, NUM_LETTERS, QUERY_POSITION = 16, 64, 3, 8, 50


def plot_encoding(positions=64, width=64):
    """Plot the encodings of the first positions and their dot products."""
    vectors = ops.convert_to_numpy(sinusoids(np.arange(positions), width))
    figure, axes = subplots(columns=2, height=3)
    images = (
        axes[0].imshow(vectors, cmap="RdBu_r", vmin=-1, vmax=1, aspect="auto"),
        axes[1].imshow(vectors @ vectors.T, cmap="Oranges", vmin=0, vmax=width / 2, aspect="auto"),
    )
    for axis, image in zip(axes, images, strict=True):
        axis.grid(False)
        figure.colorbar(image, ax=axis)
    axes[0].set(title="e[p]: sines and cosines of falling frequency", xlabel="feature", ylabel="position p")
    axes[1].set(title="e[p] · e[s]", xlabel="position s", ylabel="position p")
    return figure


def plot_distance(max_distance=200, width=64):
    """Plot what sinusoids, rotary positions and ALiBi contribute at a distance."""
    distances = np.arange(max_distance + 1)
    figure, axes = subplots(columns=3, height=2.7)
    vectors = ops.convert_to_numpy(sinusoids(distances, width))
    axes[0].plot(distances, vectors @ vectors[0])
    axes[0].set(title="sinusoids: e[p] · e[p - n]")
    ones = np.ones((1, max_distance + 1, 1, width), "float32")
    rotated = ops.convert_to_numpy(RotaryPositions().rotate(ones, distances))[0, :, 0]
    axes[1].plot(distances, rotated @ rotated[0] / width**0.5)
    axes[1].set(title="rotary: score of equal q and k")
    biases = ops.convert_to_numpy(AlibiPositions().bias(distances[-1:], distances[::-1], 8))[:, 0]
    for head in (0, 2, 4, 7):
        axes[2].plot(distances, biases[head], label=f"head {head + 1}")
    axes[2].set(title="ALiBi: added to a score", ylim=(-42, 1))
    axes[2].legend(frameon=False, loc="lower right", ncols=2, fontsize=8)
    for axis in axes:
        axis.set_xlabel("distance n")
    return figure


def sample_windows(count, length, seed):
    """Sample random letters `[count, length]`; the target at each position is the letter DELAY positions earlier."""
    ids = np.random.default_rng(seed).integers(0, NUM_LETTERS, (count, length))
    targets = np.full_like(ids, -1)  # not scored
    targets[:, DELAY:] = ids[:, :-DELAY]
    return ids, targets


def train_delayed_copy(seed, width=32, batch_size=32, steps=150):
    """Train one attention layer per kind of position encoding on windows of TRAIN_LENGTH.

    Returns:
        "accuracy": for each kind, the accuracy at each position from DELAY up to TEST_LENGTH. "weight_by_distance": the
        rotary layer's attention weights at QUERY_POSITION by distance, averaged over heads and rows.
    """
    keras.utils.set_random_seed(seed)
    ids = keras.Input((None,), dtype="int32")
    kinds = {
        "none": {},
        "learned": {"added": LearnedPositions(TRAIN_LENGTH)},
        "sinusoidal": {"added": PositionalEncoding()},
        "ALiBi": {"positions": AlibiPositions()},
        "rotary": {"positions": RotaryPositions()},
        "rotary, window of 16": {"positions": RotaryPositions(), "sliding_window": TRAIN_LENGTH},
    }
    logits, layers, inputs = {}, {}, {}
    for name, arguments in kinds.items():
        x = keras.layers.Embedding(NUM_LETTERS, width)(ids)
        if "added" in arguments:
            x = arguments.pop("added")(x)
        inputs[name] = x
        layers[name] = MultiHeadSelfAttention(num_heads=4, causal=True, **arguments)
        logits[name] = keras.layers.Dense(NUM_LETTERS)(layers[name](x))
    model = keras.Model(ids, list(logits.values()))  # side by side; nothing is shared
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True, ignore_class=-1)
    model.compile(keras.optimizers.Adam(0.01), [loss] * len(kinds), jit_compile=False)
    x, y = sample_windows(batch_size * steps, TRAIN_LENGTH, seed=seed)
    model.fit(x, [y] * len(kinds), batch_size, verbose=0)

    def accuracy(name):
        x, y = sample_windows(500, TRAIN_LENGTH if name == "learned" else TEST_LENGTH, seed=1_000)
        predictions = ops.convert_to_numpy(ops.argmax(keras.Model(ids, logits[name])(x), axis=-1))
        return [round(float(value), 3) for value in (predictions == y).mean(0)[DELAY:]]

    accuracies = {name: accuracy(name) for name in kinds}
    x = keras.Model(ids, inputs["rotary"])(sample_windows(100, TEST_LENGTH, seed=1_000)[0])
    _, weights = layers["rotary"](x, return_attention_scores=True)  # [B, H, T, S]
    weight_by_distance = ops.convert_to_numpy(weights)[:, :, QUERY_POSITION, QUERY_POSITION::-1].mean((0, 1))
    for scaling in ("linear", "ntk", "yarn"):  # the trained rotary layer, with other frequencies
        layers["rotary"].positions = RotaryPositions(
            scaling=scaling, scaling_factor=TEST_LENGTH / TRAIN_LENGTH, original_context_length=TRAIN_LENGTH
        )
        accuracies[f"rotary, {scaling}"] = accuracy("rotary")
    rounded = [round(float(weight), 3) for weight in weight_by_distance]
    return {"accuracy": accuracies, "weight_by_distance": rounded}


def measure_extrapolation(num_seeds=3):
    """Run `train_delayed_copy` with `num_seeds` seeds."""
    return [train_delayed_copy(seed) for seed in range(num_seeds)]


def plot_extrapolation():
    """Plot the accuracies of `measure_extrapolation` by position, averaged over the seeds."""
    runs = [run["accuracy"] for run in load_results("positions-extrapolation.json")]
    figure, axes = subplots(columns=2, height=3.4, sharey=True)
    for name in runs[0]:
        mean_accuracy = np.mean([run[name] for run in runs], axis=0)
        scaled = name.split(", ")[-1] in ("linear", "ntk", "yarn")
        axes[1 if scaled or name == "rotary" else 0].plot(
            DELAY + np.arange(len(mean_accuracy)), mean_accuracy, label=name, linewidth=4 if name == "learned" else 1.6
        )
    axes[0].set_title("as trained")
    axes[1].set_title("rotary, frequencies changed after training")
    for axis in axes:
        axis.axvspan(0, TRAIN_LENGTH - 1, color="0.93", zorder=0)
        axis.axhline(1 / NUM_LETTERS, color="0.6", linewidth=0.8)
        axis.set(xlabel="position (gray: trained)", xlim=(0, TEST_LENGTH - 1), ylim=(0, 1.03))
        axis.legend(frameon=False, loc="upper center", bbox_to_anchor=(0.5, -0.2), ncols=3, fontsize=8)
    axes[0].set_ylabel("accuracy")
    return figure


PLOTS = {"encoding.png": plot_encoding, "distance.svg": plot_distance, "extrapolation.svg": plot_extrapolation}
MEASUREMENTS = {"extrapolation.json": measure_extrapolation}
SLOW = ("extrapolation.json",)
