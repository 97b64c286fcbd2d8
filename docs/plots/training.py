"""Plot the images of docs/training.md."""

import keras
import numpy as np
from keras import ops

from keras_seq.training import OPTIMIZERS, InverseSqrtDecay, WarmupLinearDecay
from plots import COLORS, subplots

HESSIANS = np.array([[[1.0, 0.0], [0.0, 25.0]], [[13.0, -12.0], [-12.0, 13.0]]])
START, MINIMUM = np.array([-2.0, 1.5]), np.array([2.0, 0.5])
RUNS = {
    "SGD": ("sgd", {"learning_rate": 0.07}),
    "momentum": ("sgd", {"learning_rate": 0.02, "momentum": 0.9, "nesterov": True}),
    "Adagrad": ("adagrad", {"learning_rate": 1.0}),
    "RMSprop": ("rmsprop", {"learning_rate": 0.1}),
    "Adam": ("adam", {"learning_rate": 0.3}),
    "AdamW, decay 1": ("adamw", {"learning_rate": 0.3, "weight_decay": 1.0}),
}


def optimizer_path(name, steps=60, **settings):
    """Return the path of an optimizer on both ravines, `[steps + 1, ravines, 2]`."""
    w = keras.Variable([START] * len(HESSIANS))
    optimizer = OPTIMIZERS[name](**settings)
    points = [ops.convert_to_numpy(w)]
    for _ in range(steps):
        gradient = np.einsum("nij,nj->ni", HESSIANS, points[-1] - MINIMUM)
        optimizer.apply([ops.convert_to_tensor(gradient, "float32")], [w])
        points.append(ops.convert_to_numpy(w))
    return np.array(points)


def plot_optimizers():
    """Plot the path of each optimizer (columns) on each ravine (rows)."""
    figure, axes = subplots(len(RUNS), len(HESSIANS), width=8.4, height=1.5, sharex=True, sharey=True)
    x, y = np.meshgrid(np.linspace(-3.2, 4.2, 120), np.linspace(-3.4, 3.6, 120))
    offsets = np.stack([x, y], axis=-1) - MINIMUM
    for column, (name, (optimizer, settings)) in zip(axes.T, RUNS.items(), strict=True):
        points = optimizer_path(optimizer, **settings)
        for row, (axis, hessian) in enumerate(zip(column, HESSIANS, strict=True)):
            height = np.einsum("yxi,ij,yxj->yx", offsets, hessian, offsets) / 2
            axis.contour(x, y, height, levels=[1, 6, 20, 60], colors="#999999", linewidths=0.5)
            axis.plot(*points[:, row].T, marker=".", markersize=3, linewidth=0.8, color=COLORS[1])
            axis.plot(*START, marker="o", markersize=4, color=COLORS[0])
            axis.plot(*MINIMUM, marker="+", markersize=8, color="black")
            axis.set(xlim=(-3.2, 4.2), ylim=(-3.4, 3.6), xticks=(-2, 0, 2, 4), yticks=(-2, 0, 2))
            axis.grid(False)
        column[0].set_title(name)
    axes[0, 0].set_ylabel("axis-aligned")
    axes[1, 0].set_ylabel("rotated")
    return figure


def plot_schedules():
    """Plot the default schedule and that of the original Transformer."""
    figure, (left, right) = subplots(2, height=2.2)
    steps = np.arange(0, 2001, 5)
    linear_decay = WarmupLinearDecay(0.02, total_steps=2000, warmup_steps=50, final_lr_fraction=0.02)
    left.plot(steps, ops.convert_to_numpy(linear_decay(steps)), color=COLORS[0])
    left.set(title="WarmupLinearDecay: peak 0.02, warm-up 50", xlabel="step", ylim=(0, None))
    steps = np.arange(0, 20001, 50)
    for color, warmup in zip(COLORS, (4000, 1000), strict=False):
        rates = ops.convert_to_numpy(InverseSqrtDecay(512, warmup)(steps))
        right.plot(steps, rates, color=color, label=f"warm-up {warmup:,}")
    right.set(title="InverseSqrtDecay: D 512", xlabel="step", ylim=(0, None))
    right.legend()
    return figure


PLOTS = {"optimizers.png": plot_optimizers, "schedules.svg": plot_schedules}
