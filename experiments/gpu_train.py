"""nanoGPT's 10.65 million parameters on tiny Shakespeare, on JAX: `python -m experiments.gpu --train` starts it.

    FOLDER/config.json  settings        data.npz    the ids      metrics.jsonl  a line each evaluation
    FOLDER/checkpoint.npz               weights, seeds and optimizer of the last evaluation
    FOLDER/training.json                what came of it

The batch of a step is a function of (seed, step), drawn on the device. The validation split is scored in two ways that
are never mixed: cold, every non-overlapping window of T; and nanoGPT's estimate, the mean over random crops.
"""

import dataclasses
import json
import pathlib
import sys
import time

import jax
import jax.numpy as jnp
import keras
import numpy as np

from experiments import gpu_jax, gpu_models
from experiments.gpu_report import lines_of
from keras_seq.atomic_files import atomic_write, write_json, write_text


class Validation:
    """The nats per character of the validation split, by `cold` and by `crops`.

    Args:
        model: whose weights are given at each call.
        ids: `[N]`.
        sizes: T, B and how many batches of crops.
        seed: of the crops.
    """

    def __init__(self, model, ids, sizes, seed):
        length, rows = sizes.context, sizes.batch_size
        windows = (len(ids) - 1) // length
        x, y = ids[: windows * length].reshape(-1, length), ids[1 : windows * length + 1].reshape(-1, length)
        self.pieces = [(jnp.asarray(x[n : n + rows]), jnp.asarray(y[n : n + rows])) for n in range(0, windows, rows)]
        self.characters = windows * length
        self.key = jax.random.fold_in(jax.random.key(seed), 1)

        def total(trainable, rest, x, y):
            logits, _ = model.stateless_call(trainable, rest, x, training=False)
            return jnp.sum(gpu_jax.nats(logits, y))

        def of_crops(trainable, rest, key):
            def one(n, sum_before):
                crops = gpu_jax.random_crops(jnp.asarray(ids), rows, length, jax.random.fold_in(key, n))
                return sum_before + total(trainable, rest, *crops) / (rows * length)

            return jax.lax.fori_loop(0, sizes.crop_batches, one, jnp.float32(0)) / sizes.crop_batches

        self._total, self._of_crops = jax.jit(total), jax.jit(of_crops)

    def __call__(self, state, step) -> dict[str, float]:
        """The two figures at a step."""
        trainable, rest, _ = state
        cold = sum(float(self._total(trainable, rest, x, y)) for x, y in self.pieces) / self.characters
        crops = float(self._of_crops(trainable, rest, jax.random.fold_in(self.key, step)))
        return {"val_loss": cold, "val_loss_random_windows": crops}


def save(path: pathlib.Path, state, step):
    """Writes a checkpoint, whole or not at all."""
    leaves = {f"array_{n}": np.asarray(leaf) for n, leaf in enumerate(jax.tree.leaves(state))}
    with atomic_write(path) as temporary:
        np.savez(temporary, step=step, **leaves)


def restored(path: pathlib.Path, state):
    """The state of a checkpoint in the form of `state`, and its step.

    Raises:
        ValueError: it is one of another model.
    """
    leaves, form = jax.tree.flatten(state)
    with np.load(path) as found:
        arrays = [jnp.asarray(found[f"array_{n}"]) for n in range(len(found.files) - 1)]
        step = int(found["step"])
    if [array.shape for array in arrays] != [leaf.shape for leaf in leaves]:
        raise ValueError(f"{path} is a checkpoint of another model.")
    return jax.tree.unflatten(form, arrays), step


def train(folder: pathlib.Path) -> dict:
    """Trains what the folder's config.json says, from the checkpoint if there is one; returns what came of it."""
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    settings, sizes = config["settings"], gpu_models.Sizes(**config["sizes"])
    with np.load(folder / "data.npz") as data:
        ids, validation, vocabulary_size = jnp.asarray(data["train"]), data["validation"], len(data["vocabulary"])
    keras.utils.set_random_seed(settings["seed"])
    model = gpu_models.nano_gpt(vocabulary_size, sizes, settings["precision"])
    optimizer = gpu_models.nano_gpt_optimizer(model, sizes, settings["steps"])
    state, step = gpu_jax.state_of(model, optimizer), 0
    checkpoint, metrics = folder / "checkpoint.npz", folder / "metrics.jsonl"
    lines = []
    if checkpoint.exists():
        state, step = restored(checkpoint, state)
        lines = [line for line in lines_of(metrics) if line["step"] <= step]
    key = jax.random.fold_in(jax.random.key(settings["seed"]), 0)
    evaluate = Validation(model, validation, sizes, settings["seed"])
    loop = gpu_jax.steps_in_a_loop(
        model,
        optimizer,
        lambda n: gpu_jax.random_crops(ids, sizes.batch_size, sizes.context, jax.random.fold_in(key, n)),
    )
    parameters = model.count_params()
    print(f"{parameters:,} parameters, {len(ids):,} characters to train on, {len(validation):,} to validate on.")
    seconds = lines[-1]["train_seconds"] if lines else 0.0
    loss = None
    while True:
        if not lines or lines[-1]["step"] < step:
            lines.append({"step": step, "train_loss": loss, **evaluate(state, step), "train_seconds": seconds})
            write_text(metrics, "".join(json.dumps(line) + "\n" for line in lines))
            save(checkpoint, state, step)
            print(told(lines[-1]), flush=True)
        if step >= settings["steps"]:
            break
        number = min(sizes.evaluate_every, settings["steps"] - step)
        begun = time.perf_counter()
        state, total = loop(state, step, number)
        loss = float(total) / number
        jax.block_until_ready(state)
        seconds += time.perf_counter() - begun
        step += number
        if not np.isfinite(loss):
            raise ValueError(f"the loss of the steps up to {step} is {loss}: choose --precision float32.")
    return {
        "parameters": parameters,
        "parameters_without_positions": parameters - sizes.context * sizes.embedding_dim,
        "vocabulary_size": vocabulary_size,
        "sizes": dataclasses.asdict(sizes),
        "settings": settings,
        "best": {
            name: min(lines, key=lambda line, name=name: line[name]) for name in ("val_loss", "val_loss_random_windows")
        },
        "last": lines[-1],
        "evaluations": lines,
        "train_seconds": seconds,
        "train_tokens": step * sizes.batch_size * sizes.context,
    }


def told(line) -> str:
    """An evaluation in a line."""
    training = "" if line["train_loss"] is None else f"training {line['train_loss']:.4f}, "
    scores = f"cold {line['val_loss']:.4f}, crops {line['val_loss_random_windows']:.4f} nats"
    return f"step {line['step']}: {training}{scores}, {line['train_seconds']:.0f} s"


def main():
    """Trains in the folder that it is given."""
    folder = pathlib.Path(sys.argv[1])
    try:
        write_json(folder / "training.json", train(folder))
    except (ValueError, OSError) as error:
        sys.exit(f"experiments.gpu: {error}")
    except KeyboardInterrupt:
        sys.exit(130)


if __name__ == "__main__":
    main()
