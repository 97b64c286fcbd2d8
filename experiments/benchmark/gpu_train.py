"""Train nanoGPT's small Transformer with JAX; started by `experiments.benchmark.gpu --train`.

    FOLDER/config.json       options            data.npz    ids      metrics.jsonl  one line per validation
    FOLDER/checkpoint.npz    weights, seeds and optimizer variables at the last validation
    FOLDER/training.json     results

The batch of a step is a function of (seed, step), drawn on the device. The validation split is scored by two separate
protocols: val_loss on all disjoint windows of T, and nanoGPT's estimate, the mean over random windows.
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

from experiments.benchmark import gpu_jax, gpu_models
from experiments.benchmark.gpu_report import read_metrics
from keras_seq.atomic_files import atomic_write, write_json, write_text

LOSSES = ("val_loss", "val_loss_random_windows")


class Validator:
    """Compute the validation loss on disjoint and on random windows, in nats per character.

    Args:
        model: Model whose weights are given at each call.
        ids: Ids of the validation split, `[N]`.
        config: `NanoGPTConfig` with T, B and the number of batches of random windows.
        seed: Random seed of the random windows.
    """

    def __init__(self, model, ids, config, seed):
        length, batch_size = config.context_length, config.batch_size
        windows = (len(ids) - 1) // length
        x, y = ids[: windows * length].reshape(-1, length), ids[1 : windows * length + 1].reshape(-1, length)
        slices = (slice(n, n + batch_size) for n in range(0, windows, batch_size))
        self.batches = [(jnp.asarray(x[rows]), jnp.asarray(y[rows])) for rows in slices]
        self.characters = windows * length
        self.key = jax.random.fold_in(jax.random.key(seed), 1)

        def loss_sum(trainable, non_trainable, x, y):
            logits, _ = model.stateless_call(trainable, non_trainable, x, training=False)
            return jnp.sum(gpu_jax.token_losses(logits, y))

        def random_windows_loss(trainable, non_trainable, key):
            def body(n, total):
                step_key = jax.random.fold_in(key, n)
                windows = gpu_jax.random_windows(jnp.asarray(ids), batch_size, length, step_key)
                return total + loss_sum(trainable, non_trainable, *windows) / (batch_size * length)

            num_batches = config.random_window_batches
            return jax.lax.fori_loop(0, num_batches, body, jnp.float32(0)) / num_batches

        self._loss_sum, self._random_windows_loss = jax.jit(loss_sum), jax.jit(random_windows_loss)

    def __call__(self, state, step) -> dict[str, float]:
        """Return both losses.

        Args:
            state: Training state, as `gpu_jax.training_state` returns it.
            step: Number of the training step.
        """
        trainable, non_trainable, _ = state
        loss = sum(float(self._loss_sum(trainable, non_trainable, x, y)) for x, y in self.batches) / self.characters
        random = float(self._random_windows_loss(trainable, non_trainable, jax.random.fold_in(self.key, step)))
        return dict(zip(LOSSES, (loss, random), strict=True))


def save_checkpoint(path: pathlib.Path, state, step):
    """Write a checkpoint atomically.

    Args:
        path: File to write.
        state: Training state.
        step: Number of the training step.
    """
    leaves = {f"array_{n}": np.asarray(leaf) for n, leaf in enumerate(jax.tree.leaves(state))}
    with atomic_write(path) as temporary:
        np.savez(temporary, step=step, **leaves)


def load_checkpoint(path: pathlib.Path, state):
    """Load a checkpoint.

    Args:
        path: File of the checkpoint.
        state: Training state of the same structure and shapes.

    Returns:
        The loaded state and its step.

    Raises:
        ValueError: The checkpoint belongs to another model.
    """
    leaves, structure = jax.tree.flatten(state)
    with np.load(path) as checkpoint:
        arrays = [jnp.asarray(checkpoint[f"array_{n}"]) for n in range(len(checkpoint.files) - 1)]
        step = int(checkpoint["step"])
    if [array.shape for array in arrays] != [leaf.shape for leaf in leaves]:
        raise ValueError(f"{path} is a checkpoint of another model.")
    return jax.tree.unflatten(structure, arrays), step


def train(folder: pathlib.Path) -> dict:
    """Train as the folder's config.json says, from its checkpoint if there is one.

    Args:
        folder: Run folder with config.json and data.npz.

    Returns:
        The contents of training.json.

    Raises:
        ValueError: The checkpoint belongs to another model, or the loss became NaN or infinite.
    """
    run_config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    config, sizes = run_config["config"], gpu_models.NanoGPTConfig(**run_config["sizes"])
    with np.load(folder / "data.npz") as data:
        ids, validation, vocabulary_size = jnp.asarray(data["train"]), data["validation"], len(data["vocabulary"])
    keras.utils.set_random_seed(config["seed"])
    model = gpu_models.build_nano_gpt(vocabulary_size, sizes, config["precision"])
    optimizer = gpu_models.nano_gpt_optimizer(model, sizes, config["steps"])
    state, step = gpu_jax.training_state(model, optimizer), 0
    checkpoint, metrics = folder / "checkpoint.npz", folder / "metrics.jsonl"
    lines = []
    if checkpoint.exists():
        state, step = load_checkpoint(checkpoint, state)
        lines = [line for line in read_metrics(metrics) if line["step"] <= step]
    key = jax.random.fold_in(jax.random.key(config["seed"]), 0)
    validate = Validator(model, validation, sizes, config["seed"])
    step_loop = gpu_jax.compile_step_loop(
        model,
        optimizer,
        lambda n: gpu_jax.random_windows(ids, sizes.batch_size, sizes.context_length, jax.random.fold_in(key, n)),
    )
    parameters = model.count_params()
    print(f"{parameters:,} parameters, {len(ids):,} training characters, {len(validation):,} validation characters.")
    seconds = lines[-1]["train_seconds"] if lines else 0.0
    loss = None
    while True:
        if not lines or lines[-1]["step"] < step:
            lines.append({"step": step, "train_loss": loss, **validate(state, step), "train_seconds": seconds})
            write_text(metrics, "".join(json.dumps(line) + "\n" for line in lines))
            save_checkpoint(checkpoint, state, step)
            print(progress_line(lines[-1]), flush=True)
        if step >= config["steps"]:
            break
        num_steps = min(sizes.validate_every, config["steps"] - step)
        start_time = time.perf_counter()
        state, total = step_loop(state, step, num_steps)
        loss = float(total) / num_steps
        jax.block_until_ready(state)
        seconds += time.perf_counter() - start_time
        step += num_steps
        if not np.isfinite(loss):
            raise ValueError(f"the loss of the steps up to {step} is {loss}: choose --precision float32.")
    return {
        "parameters": parameters,
        "parameters_without_positions": parameters - sizes.context_length * sizes.embedding_dim,
        "vocabulary_size": vocabulary_size,
        "sizes": dataclasses.asdict(sizes),
        "config": config,
        "best": {name: min(lines, key=lambda line, name=name: line[name]) for name in LOSSES},
        "last": lines[-1],
        "validations": lines,
        "train_seconds": seconds,
        "train_tokens": step * sizes.batch_size * sizes.context_length,
    }


def progress_line(line) -> str:
    """Format a validation as one line."""
    train_loss = "" if line["train_loss"] is None else f"train loss {line['train_loss']:.4f}, "
    losses = f"val_loss {line['val_loss']:.4f}, on random windows {line['val_loss_random_windows']:.4f}"
    return f"step {line['step']}: {train_loss}{losses}, {line['train_seconds']:.0f} s"


def main():
    """Train in the folder given on the command line."""
    folder = pathlib.Path(sys.argv[1])
    try:
        write_json(folder / "training.json", train(folder))
    except (ValueError, OSError) as error:
        sys.exit(f"experiments.benchmark.gpu: {error}")
    except KeyboardInterrupt:
        sys.exit(130)


if __name__ == "__main__":
    main()
