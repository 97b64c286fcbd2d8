"""The pictures of docs/positions.md."""

import keras
import numpy as np
from keras import ops

from drawing import panes, results
from keras_seq.layers import (
    AlibiPositions,
    LearnedPositions,
    MultiHeadSelfAttention,
    PositionalEncoding,
    RotaryPositions,
)
from keras_seq.layers.positions import sinusoids

TRAINED, SCORED, BACK, LETTERS, LOOKING = 16, 64, 3, 8, 50


def encoding(positions=64, width=64):
    """The vectors of the first positions, and the dot products between them."""
    vectors = ops.convert_to_numpy(sinusoids(np.arange(positions), width))
    figure, axes = panes(columns=2, height=3)
    images = (
        axes[0].imshow(vectors, cmap="RdBu_r", vmin=-1, vmax=1, aspect="auto"),
        axes[1].imshow(vectors @ vectors.T, cmap="Oranges", vmin=0, vmax=width / 2, aspect="auto"),
    )
    for pane, image in zip(axes, images, strict=True):
        pane.grid(False)
        figure.colorbar(image, ax=pane)
    axes[0].set(title="e[p]: sine, cosine, slower and slower", xlabel="place in the vector", ylabel="position p")
    axes[1].set(title="e[p] · e[s]", xlabel="position s", ylabel="position p")
    return figure


def distance(furthest=200, width=64):
    """What the sinusoids, rotary positions and ALiBi make of a distance."""
    distances = np.arange(furthest + 1)
    figure, axes = panes(columns=3, height=2.7)
    vectors = ops.convert_to_numpy(sinusoids(distances, width))
    axes[0].plot(distances, vectors @ vectors[0])
    axes[0].set(title="sinusoids: e[p] · e[p - n]")
    ones = np.ones((1, furthest + 1, 1, width), "float32")
    rotated = ops.convert_to_numpy(RotaryPositions().rotate(ones, distances))[0, :, 0]
    axes[1].plot(distances, rotated @ rotated[0] / width**0.5)
    axes[1].set(title="rotary: score of equal q and k")
    biases = ops.convert_to_numpy(AlibiPositions().bias(distances[-1:], distances[::-1], 8))[:, 0]
    for head in (0, 2, 4, 7):
        axes[2].plot(distances, biases[head], label=f"head {head + 1}")
    axes[2].set(title="ALiBi: added to a score", ylim=(-42, 1))
    axes[2].legend(frameon=False, loc="lower right", ncols=2, fontsize=8)
    for pane in axes:
        pane.set_xlabel("distance n")
    return figure


def windows(count, length, seed):
    """Random letters; to be said at each: the letter BACK positions before."""
    ids = np.random.default_rng(seed).integers(0, LETTERS, (count, length))
    targets = np.full_like(ids, -1)  # not scored
    targets[:, BACK:] = ids[:, :-BACK]
    return ids, targets


def learned_to_look_back(seed, width=32, batch_size=32, steps=150):
    """Trains an attention layer of each kind up to TRAINED.

    Returns the share that is right at each position from BACK up to SCORED, and the rotary layer's weights at position
    LOOKING by distance, mean over heads and rows.
    """
    keras.utils.set_random_seed(seed)
    ids = keras.Input((None,), dtype="int32")
    kinds = {
        "none": {},
        "learned": {"added": LearnedPositions(TRAINED)},
        "sinusoidal": {"added": PositionalEncoding()},
        "ALiBi": {"positions": AlibiPositions()},
        "rotary": {"positions": RotaryPositions()},
        "rotary, window of 16": {"positions": RotaryPositions(), "window": TRAINED},
    }
    logits, layers, inputs = {}, {}, {}
    for name, arguments in kinds.items():
        x = keras.layers.Embedding(LETTERS, width)(ids)
        if "added" in arguments:
            x = arguments.pop("added")(x)
        inputs[name] = x
        layers[name] = MultiHeadSelfAttention(num_heads=4, causal=True, **arguments)
        logits[name] = keras.layers.Dense(LETTERS)(layers[name](x))
    model = keras.Model(ids, list(logits.values()))  # side by side; nothing is shared
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True, ignore_class=-1)
    model.compile(keras.optimizers.Adam(0.01), [loss] * len(kinds), jit_compile=False)
    x, y = windows(batch_size * steps, TRAINED, seed=seed)
    model.fit(x, [y] * len(kinds), batch_size, verbose=0)

    def right(name):
        x, y = windows(500, TRAINED if name == "learned" else SCORED, seed=1_000)
        found = ops.convert_to_numpy(ops.argmax(keras.Model(ids, logits[name])(x), axis=-1))
        return [round(float(share), 3) for share in (found == y).mean(0)[BACK:]]

    shares = {name: right(name) for name in kinds}
    x = keras.Model(ids, inputs["rotary"])(windows(100, SCORED, seed=1_000)[0])
    _, weights = layers["rotary"](x, return_attention_scores=True)  # [B, H, T, S]
    looks = ops.convert_to_numpy(weights)[:, :, LOOKING, LOOKING::-1].mean((0, 1))
    for scaling in ("linear", "ntk", "yarn"):  # the trained rotary layer, with other frequencies
        layers["rotary"].positions = RotaryPositions(scaling=scaling, factor=SCORED / TRAINED, original_length=TRAINED)
        shares[f"rotary, {scaling}"] = right("rotary")
    return {"right": shares, "looks": [round(float(weight), 3) for weight in looks]}


def past_the_length(seeds=3):
    """`learned_to_look_back` for a few seeds."""
    return [learned_to_look_back(seed) for seed in range(seeds)]


def past():
    """What `past_the_length` measured, by position: the mean over the seeds."""
    runs = [run["right"] for run in results("positions-past.json")]
    figure, axes = panes(columns=2, height=3.4, sharey=True)
    for name in runs[0]:
        share = np.mean([run[name] for run in runs], axis=0)
        scaled = name.split(", ")[-1] in ("linear", "ntk", "yarn")
        axes[1 if scaled or name == "rotary" else 0].plot(
            BACK + np.arange(len(share)), share, label=name, linewidth=4 if name == "learned" else 1.6
        )
    axes[0].set_title("as trained")
    axes[1].set_title("rotary, its frequencies changed afterwards")
    for pane in axes:
        pane.axvspan(0, TRAINED - 1, color="0.93", zorder=0)
        pane.axhline(1 / LETTERS, color="0.6", linewidth=0.8)
        pane.set(xlabel="position (grey: trained)", xlim=(0, SCORED - 1), ylim=(0, 1.03))
        pane.legend(frameon=False, loc="upper center", bbox_to_anchor=(0.5, -0.2), ncols=3, fontsize=8)
    axes[0].set_ylabel("right")
    return figure


FIGURES = {"encoding.png": encoding, "distance.svg": distance, "past.svg": past}
MEASURES = {"past.json": past_the_length}
SLOW = ("past.json",)
