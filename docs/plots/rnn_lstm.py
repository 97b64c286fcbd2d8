"""Plot the images of docs/rnn-lstm.md."""

import keras
import numpy as np
import tensorflow as tf
from keras import ops, tree
from matplotlib.patches import FancyBboxPatch

from keras_seq.layers import LSTM, Bidirectional, SimpleRNN, Stateful
from plots import COLORS, GRAY, load_results, subplots


def plot_unrolled(word="hello", units=4):
    """Plot a simple recurrent network unrolled over a word, with the h of each time step."""
    letters = sorted(set(word))
    x = np.eye(len(letters), dtype="float32")[[letters.index(letter) for letter in word]]
    h = ops.convert_to_numpy(
        SimpleRNN(units, kernel_initializer=keras.initializers.Orthogonal(1.5, seed=1), return_sequences=True)(x[None])
    )[0]
    figure, axes = subplots(height=2.9)
    axes.set(xlim=(-0.9, len(word) * 1.6 + 0.1), ylim=(-1.35, 2.35), aspect="equal")
    axes.axis("off")
    arrow = {"arrowstyle": "-|>", "color": GRAY, "linewidth": 1.2}
    for t, letter in enumerate(word):
        left = 1.6 * t
        axes.add_patch(FancyBboxPatch((left, 0), 0.9, 0.9, "round,pad=0.02", facecolor="#e8eef5", edgecolor=GRAY))
        axes.text(left + 0.45, 0.45, "tanh", ha="center", va="center")
        strip = (left + 0.09, left + 0.81, 1.45, 1.63)
        axes.imshow(h[t][None], extent=strip, cmap="RdBu_r", vmin=-1, vmax=1, aspect="equal", zorder=2)
        axes.add_patch(
            FancyBboxPatch((strip[0], 1.45), 0.72, 0.18, "square,pad=0", fill=False, edgecolor=GRAY, zorder=3)
        )
        axes.text(left + 0.45, 1.75, f"$h_{t + 1}$", ha="center", va="bottom")
        axes.text(left + 0.45, -1.05, f"{letter!r}", ha="center", va="center", family="DejaVu Sans Mono")
        axes.annotate("", (left + 0.45, 0), (left + 0.45, -0.85), arrowprops=arrow)
        axes.annotate("", (left + 0.45, 1.43), (left + 0.45, 0.92), arrowprops=arrow)
        axes.annotate("", (left - 0.02, 0.45), (left - 0.68, 0.45), arrowprops=arrow)
        axes.text(left + 0.53, -0.42, "W", color=COLORS[0])
        axes.text(left - 0.36, 0.52, "U" if t else "0", color=COLORS[1] if t else GRAY, ha="center", va="bottom")
    axes.annotate("", (left + 1.6, 0.45), (left + 0.92, 0.45), arrowprops=arrow)
    return figure


def gradient_norms(layer, positions, rows=32):
    """Return the norm of the gradient of a random projection of the last h, by number of time steps back."""
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
    """Return an initializer of an LSTM's bias: `value` for the forget gate, zero for the rest."""
    return lambda shape, dtype: ops.repeat(ops.array([0.0, value, 0.0, 0.0], dtype), shape[0] // 4)


def measure_gradients(positions=61):
    """Return log10 of `gradient_norms` by distance, for untrained layers."""
    layers = {"SimpleRNN": SimpleRNN(32, return_sequences=True)}
    for bias in (0.0, 1.0, 4.0):
        start = {"bias_initializer": forget_bias(bias), "unit_forget_bias": False, "return_sequences": True}
        layers[f"LSTM, forget bias {bias:g}"] = LSTM(32, **start)
    for bias in (0.0, 1.0, 4.0):
        start = {"bias_initializer": forget_bias(bias), "unit_forget_bias": False, "return_sequences": True}
        without = LSTM(32, recurrent_initializer="zeros", **start)
        layers[f"LSTM, forget bias {bias:g}, without U"] = without
    powers = {name: np.log10(gradient_norms(layer, positions)) for name, layer in layers.items()}
    return {name: [round(float(v), 3) for v in values] for name, values in powers.items()}


def plot_gradients():
    """Plot the norms of `measure_gradients`."""
    figure, axes = subplots(height=3)
    for name, powers in load_results("rnn-lstm-gradients.json").items():
        if not name.endswith("without U"):
            last = len(powers) - 1
            (line,) = axes.plot(10 ** np.array(powers), linewidth=1.8)
            axes.annotate(
                name, (last, 10 ** powers[-1]), (5, 0), textcoords="offset points", va="center", color=line.get_color()
            )
    axes.set(yscale="log", xlim=(0, last), xlabel="positions before the last")
    axes.set_title("Norm of the gradient of u · h at the last position, with respect to earlier states", loc="left")
    return figure


def sample_windows(count, seed, length=8):
    """Sample walks on a circle of eight letters, in one direction per window, with a tenth of the steps random."""
    random = np.random.default_rng(seed)
    direction = random.choice([-1, 1], size=(count, 1))
    steps = np.where(random.random((count, length)) < 0.9, direction, random.integers(0, 8, (count, length)))
    ids = np.cumsum(np.concatenate([random.integers(0, 8, (count, 1)), steps], axis=1), axis=1) % 8
    return ids[:, :-1], ids[:, 1:]


def measure_foreign_state(batch_size=32, batches=300, scored=4000):
    """Return losses by position of models trained from the zero state and from the state of unrelated windows."""
    losses_by_model = {}
    for trained, resets in (("the zero state", True), ("a foreign state", False)):
        keras.utils.set_random_seed(0)
        embedding, lstm, dense = keras.layers.Embedding(8, 8), LSTM(16, return_sequences=True), keras.layers.Dense(8)
        ids = keras.Input((8,), batch_size, dtype="int32")
        reset_mask = keras.Input((), batch_size, dtype="bool")
        model = keras.Model([ids, reset_mask], dense(Stateful(lstm, batch_size)(embedding(ids), reset_mask)))
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True, reduction=None)
        model.compile(keras.optimizers.Adam(0.01), loss, jit_compile=False)
        x, y = sample_windows(batches * batch_size, seed=0)
        model.fit([x, np.full(len(x), resets)], y, batch_size, shuffle=False, verbose=0)
        x, y = sample_windows(scored, seed=1)
        _, foreign = lstm(embedding(sample_windows(scored, seed=2)[0]), return_state=True)
        for name, state in (("the zero state", None), ("a foreign state", foreign)):
            losses = ops.convert_to_numpy(loss(y, dense(lstm(embedding(x), state=state)))).mean(0)
            losses_by_model[f"trained from {trained}, scored from {name}"] = [round(float(v), 4) for v in losses]
    return losses_by_model


def plot_foreign_state():
    """Plot the losses of `measure_foreign_state` by position."""
    figure, axes = subplots(width=6.4, height=2.8)
    for n, (name, losses) in enumerate(load_results("rnn-lstm-foreign-state.json").items()):
        axes.plot(
            range(1, len(losses) + 1), losses, color=COLORS[n // 2], linestyle="-" if n % 2 == 0 else "--", label=name
        )
    axes.axhline(
        -0.9125 * np.log(0.9125) - 7 * 0.0125 * np.log(0.0125), color=GRAY, linewidth=1, label="direction known"
    )
    axes.set(xlabel="position in the window", ylabel="nats per letter", ylim=(0.4, 1.5))
    axes.legend(frameon=False)
    return figure


def plot_receptive_field(length=16):
    """Plot how far each output moves when one input is changed, for one direction and for both."""
    x = np.random.default_rng(0).normal(size=(1, length, 3)).astype("float32")
    changed = np.repeat(x, length, axis=0)
    changed[range(length), range(length)] += 0.1
    layers = {
        "LSTM": LSTM(8, return_sequences=True),
        "Bidirectional(LSTM)": Bidirectional(LSTM(8, return_sequences=True)),
    }
    figure, axes = subplots(columns=2, height=3)
    for axis, (name, layer) in zip(axes, layers.items(), strict=True):
        moved = np.linalg.norm(ops.convert_to_numpy(layer(changed) - layer(x)), axis=-1).T  # [output, input]
        image = axis.imshow(
            np.where(moved > 0, np.log10(np.maximum(moved, 1e-9)), np.nan), cmap="Oranges", vmin=-4, vmax=-1
        )
        axis.set(title=name, xlabel="input that is changed", yticks=range(0, length, 5))
        axis.grid(False)
    axes[0].set_ylabel("output")
    figure.colorbar(image, ax=axes, label="moves by 10^", ticks=range(-4, 0))
    return figure


PLOTS = {
    "unrolled.svg": plot_unrolled,
    "gradients.svg": plot_gradients,
    "foreign-state.svg": plot_foreign_state,
    "receptive-field.png": plot_receptive_field,
}
MEASUREMENTS = {"gradients.json": measure_gradients, "foreign-state.json": measure_foreign_state}
