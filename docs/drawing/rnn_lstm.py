"""The pictures of docs/rnn-lstm.md."""

import keras
import numpy as np
import tensorflow as tf
from keras import ops, tree
from matplotlib.patches import FancyBboxPatch

from drawing import COLOURS, GREY, panes, results
from keras_seq.layers import LSTM, Bidirectional, SimpleRNN, Stateful


def unrolled(word="hello", units=4):
    """A simple recurrent network over a word, a copy of the cell for each letter, with the h that the layer gives."""
    letters = sorted(set(word))
    x = np.eye(len(letters), dtype="float32")[[letters.index(letter) for letter in word]]
    h = ops.convert_to_numpy(
        SimpleRNN(units, kernel_initializer=keras.initializers.Orthogonal(1.5, seed=1), return_sequences=True)(x[None])
    )[0]
    figure, axes = panes(height=2.9)
    axes.set(xlim=(-0.9, len(word) * 1.6 + 0.1), ylim=(-1.35, 2.35), aspect="equal")
    axes.axis("off")
    arrow = {"arrowstyle": "-|>", "color": GREY, "linewidth": 1.2}
    for t, letter in enumerate(word):
        left = 1.6 * t
        axes.add_patch(FancyBboxPatch((left, 0), 0.9, 0.9, "round,pad=0.02", facecolor="#e8eef5", edgecolor=GREY))
        axes.text(left + 0.45, 0.45, "tanh", ha="center", va="center")
        strip = (left + 0.09, left + 0.81, 1.45, 1.63)
        axes.imshow(h[t][None], extent=strip, cmap="RdBu_r", vmin=-1, vmax=1, aspect="equal", zorder=2)
        axes.add_patch(
            FancyBboxPatch((strip[0], 1.45), 0.72, 0.18, "square,pad=0", fill=False, edgecolor=GREY, zorder=3)
        )
        axes.text(left + 0.45, 1.75, f"$h_{t + 1}$", ha="center", va="bottom")
        axes.text(left + 0.45, -1.05, f"{letter!r}", ha="center", va="center", family="DejaVu Sans Mono")
        axes.annotate("", (left + 0.45, 0), (left + 0.45, -0.85), arrowprops=arrow)
        axes.annotate("", (left + 0.45, 1.43), (left + 0.45, 0.92), arrowprops=arrow)
        axes.annotate("", (left - 0.02, 0.45), (left - 0.68, 0.45), arrowprops=arrow)
        axes.text(left + 0.53, -0.42, "W", color=COLOURS[0])
        axes.text(left - 0.36, 0.52, "U" if t else "0", color=COLOURS[1] if t else GREY, ha="center", va="bottom")
    axes.annotate("", (left + 1.6, 0.45), (left + 0.92, 0.45), arrowprops=arrow)
    return figure


def gradient_lengths(layer, positions, rows=32):
    """As on the page: `[n]` how long the gradient of a direction of h is n positions before the last."""
    random = np.random.default_rng(0)
    x = random.normal(size=(rows, positions, 8)).astype("float32")
    u = random.normal(size=(rows, layer.units)).astype("float32")
    states, state = [], layer.get_initial_state(rows)
    with tf.GradientTape() as tape:
        for t in range(positions):
            state = tree.map_structure(tf.identity, state)
            tape.watch(state)
            states.append(state)
            h, state = layer.step(x[:, t], state)
        target = ops.sum(h * u / np.linalg.norm(u, axis=1, keepdims=True))
    gradients = [np.concatenate(tree.flatten(g), axis=-1) for g in tape.gradient(target, states)]
    return np.array([np.sqrt((g**2).sum(-1).mean()) for g in reversed(gradients)])


def forget_bias(value):
    """An initializer of an LSTM's bias: `value` for the forget gate, zero for the rest."""
    return lambda shape, dtype: ops.repeat(ops.array([0.0, value, 0.0, 0.0], dtype), shape[0] // 4)


def gradient_powers(positions=61):
    """The powers of ten of those lengths, by distance, for layers as they start."""
    layers = {"SimpleRNN": SimpleRNN(32, return_sequences=True)}
    for bias in (0.0, 1.0, 4.0):
        start = {"bias_initializer": forget_bias(bias), "unit_forget_bias": False, "return_sequences": True}
        layers[f"LSTM, forget bias {bias:g}"] = LSTM(32, **start)
    for bias in (0.0, 1.0, 4.0):
        start = {"bias_initializer": forget_bias(bias), "unit_forget_bias": False, "return_sequences": True}
        without = LSTM(32, recurrent_initializer="zeros", **start)
        layers[f"LSTM, forget bias {bias:g}, without U"] = without
    powers = {name: np.log10(gradient_lengths(layer, positions)) for name, layer in layers.items()}
    return {name: [round(float(v), 3) for v in values] for name, values in powers.items()}


def gradients():
    """What `gradient_powers` measured."""
    figure, axes = panes(height=3)
    for name, powers in results("rnn-lstm-gradients.json").items():
        if not name.endswith("without U"):
            last = len(powers) - 1
            (line,) = axes.plot(10 ** np.array(powers), linewidth=1.8)
            axes.annotate(
                name, (last, 10 ** powers[-1]), (5, 0), textcoords="offset points", va="center", color=line.get_color()
            )
    axes.set(yscale="log", xlim=(0, last), xlabel="positions before the last")
    axes.set_title("Length of the gradient of u · h at the last position, with respect to the state before", loc="left")
    return figure


def windows(count, seed, length=8):
    """Letters in a circle of eight; a coin says which way a window goes, and a tenth of its steps are random."""
    random = np.random.default_rng(seed)
    way = random.choice([-1, 1], size=(count, 1))
    steps = np.where(random.random((count, length)) < 0.9, way, random.integers(0, 8, (count, length)))
    ids = np.cumsum(np.concatenate([random.integers(0, 8, (count, 1)), steps], axis=1), axis=1) % 8
    return ids[:, :-1], ids[:, 1:]


def carry(batch_size=32, batches=300, scored=4000):
    """Nats by position of a model trained from the zero state and of one trained from that of unrelated windows."""
    measured = {}
    for trained, reset_mask in (("the zero state", True), ("a foreign state", False)):
        keras.utils.set_random_seed(0)
        embedding, lstm, dense = keras.layers.Embedding(8, 8), LSTM(16, return_sequences=True), keras.layers.Dense(8)
        ids = keras.Input((8,), batch_size, dtype="int32")
        starts = keras.Input((), batch_size, dtype="bool")
        model = keras.Model([ids, starts], dense(Stateful(lstm, batch_size)(embedding(ids), starts)))
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True, reduction=None)
        model.compile(keras.optimizers.Adam(0.01), loss, jit_compile=False)
        x, y = windows(batches * batch_size, seed=0)
        model.fit([x, np.full(len(x), reset_mask)], y, batch_size, shuffle=False, verbose=0)
        x, y = windows(scored, seed=1)
        _, foreign = lstm(embedding(windows(scored, seed=2)[0]), return_state=True)
        for name, state in (("the zero state", None), ("a foreign state", foreign)):
            nats = ops.convert_to_numpy(loss(y, dense(lstm(embedding(x), state=state)))).mean(0)
            measured[f"trained from {trained}, scored from {name}"] = [round(float(v), 4) for v in nats]
    return measured


def carried():
    """What `carry` measured, by position."""
    figure, axes = panes(width=6.4, height=2.8)
    for n, (name, nats) in enumerate(results("rnn-lstm-carry.json").items()):
        axes.plot(
            range(1, len(nats) + 1), nats, color=COLOURS[n // 2], linestyle="-" if n % 2 == 0 else "--", label=name
        )
    axes.axhline(
        -0.9125 * np.log(0.9125) - 7 * 0.0125 * np.log(0.0125), color=GREY, linewidth=1, label="the way is known"
    )
    axes.set(xlabel="position in the window", ylabel="nats per letter", ylim=(0.4, 1.5))
    axes.legend(frameon=False)
    return figure


def sees(length=16):
    """How far each output moves when one input does, for one direction and for both."""
    x = np.random.default_rng(0).normal(size=(1, length, 3)).astype("float32")
    changed = np.repeat(x, length, axis=0)
    changed[range(length), range(length)] += 0.1
    layers = {
        "LSTM": LSTM(8, return_sequences=True),
        "Bidirectional(LSTM)": Bidirectional(LSTM(8, return_sequences=True)),
    }
    figure, axes = panes(columns=2, height=3)
    for pane, (name, layer) in zip(axes, layers.items(), strict=True):
        moved = np.linalg.norm(ops.convert_to_numpy(layer(changed) - layer(x)), axis=-1).T  # [output, input]
        image = pane.imshow(
            np.where(moved > 0, np.log10(np.maximum(moved, 1e-9)), np.nan), cmap="Oranges", vmin=-4, vmax=-1
        )
        pane.set(title=name, xlabel="input that is changed", yticks=range(0, length, 5))
        pane.grid(False)
    axes[0].set_ylabel("output")
    figure.colorbar(image, ax=axes, label="moves by 10^", ticks=range(-4, 0))
    return figure


FIGURES = {"unrolled.svg": unrolled, "gradients.svg": gradients, "carry.svg": carried, "sees.png": sees}
MEASURES = {"gradients.json": gradient_powers, "carry.json": carry}
