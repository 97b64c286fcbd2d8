"""The pictures of docs/training.md: the way of each optimizer down a ravine, and the schedules."""

import keras
import numpy as np
from keras import ops

from drawing import COLOURS, panes
from keras_seq.training import OPTIMIZERS, InverseSqrtDecay, WarmupLinearDecay

SLOPES = np.array([[[1.0, 0.0], [0.0, 25.0]], [[13.0, -12.0], [-12.0, 13.0]]])
START, LOWEST = np.array([-2.0, 1.5]), np.array([2.0, 0.5])
RUNS = {
    "SGD": ("sgd", {"learning_rate": 0.07}),
    "momentum": ("sgd", {"learning_rate": 0.02, "momentum": 0.9, "nesterov": True}),
    "Adagrad": ("adagrad", {"learning_rate": 1.0}),
    "RMSprop": ("rmsprop", {"learning_rate": 0.1}),
    "Adam": ("adam", {"learning_rate": 0.3}),
    "AdamW, decay 1": ("adamw", {"learning_rate": 0.3, "weight_decay": 1.0}),
}


def walk(name, steps=60, **settings):
    """`[steps + 1, ravines, 2]`: where one of our optimizers goes."""
    w = keras.Variable([START] * len(SLOPES))
    optimizer = OPTIMIZERS[name](**settings)
    points = [ops.convert_to_numpy(w)]
    for _ in range(steps):
        gradient = np.einsum("nij,nj->ni", SLOPES, points[-1] - LOWEST)
        optimizer.apply([ops.convert_to_tensor(gradient, "float32")], [w])
        points.append(ops.convert_to_numpy(w))
    return np.array(points)


def optimizers():
    """A column an optimizer, a row a ravine."""
    figure, axes = panes(len(RUNS), len(SLOPES), width=8.4, height=1.5, sharex=True, sharey=True)
    x, y = np.meshgrid(np.linspace(-3.2, 4.2, 120), np.linspace(-3.4, 3.6, 120))
    away = np.stack([x, y], axis=-1) - LOWEST
    for column, (name, (optimizer, settings)) in zip(axes.T, RUNS.items(), strict=True):
        points = walk(optimizer, **settings)
        for row, (axis, slopes) in enumerate(zip(column, SLOPES, strict=True)):
            height = np.einsum("yxi,ij,yxj->yx", away, slopes, away) / 2
            axis.contour(x, y, height, levels=[1, 6, 20, 60], colors="#999999", linewidths=0.5)
            axis.plot(*points[:, row].T, marker=".", markersize=3, linewidth=0.8, color=COLOURS[1])
            axis.plot(*START, marker="o", markersize=4, color=COLOURS[0])
            axis.plot(*LOWEST, marker="+", markersize=8, color="black")
            axis.set(xlim=(-3.2, 4.2), ylim=(-3.4, 3.6), xticks=(-2, 0, 2, 4), yticks=(-2, 0, 2))
            axis.grid(False)
        column[0].set_title(name)
    axes[0, 0].set_ylabel("along the axes")
    axes[1, 0].set_ylabel("turned")
    return figure


def schedules():
    """The defaults of this project, and the Transformer's own."""
    figure, (left, right) = panes(2, height=2.2)
    steps = np.arange(0, 2001, 5)
    down = WarmupLinearDecay(peak_learning_rate=0.02, total_steps=2000, warmup_steps=50, final_lr_fraction=0.02)
    left.plot(steps, ops.convert_to_numpy(down(steps)), color=COLOURS[0])
    left.set(title="WarmupDecay: peak 0.02, warm-up 50", xlabel="step", ylim=(0, None))
    steps = np.arange(0, 20001, 50)
    for colour, warmup in zip(COLOURS, (4000, 1000), strict=False):
        rates = ops.convert_to_numpy(InverseSqrtDecay(512, warmup)(steps))
        right.plot(steps, rates, color=colour, label=f"warm-up {warmup:,}")
    right.set(title="InverseSquareRoot: D 512", xlabel="step", ylim=(0, None))
    right.legend()
    return figure


FIGURES = {"optimizers.png": optimizers, "schedules.svg": schedules}
