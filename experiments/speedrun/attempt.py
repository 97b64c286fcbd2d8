"""Train and score one seed of a recipe in a process of its own, started by the speedrun.

    python -m experiments.speedrun.attempt      reads lines of JSON, and answers each with one on the same pipe

    {"recipe": PATH, "seed": 0, "vocabulary_size": 65, "ids": [...]}    ->  {"processor_seconds": ..., "gflops": [...]}
    {"ids": [...]}, of the text to score                                ->  {"val_loss": ..., "parameters": ...}

While the recipe trains, the text to score is not in this process. Neither the file of the corpus nor the network can be
opened from Python, then and while the model is scored. What the recipe prints goes to stderr.
"""

import importlib.util
import json
import os
import pathlib
import statistics
import sys
import time
from collections.abc import Callable

import keras
import numpy as np

from experiments.speedrun.records import LENGTH
from keras_seq import models, training  # noqa: F401  before the clock starts: imports are not measured
from keras_seq.evaluation import Evaluator
from keras_seq.models.laws import assert_causal

SIZE, REPEATS = 1024, 25  # of the float32 product that measures the processor
ROWS, TOLERANCE = 3, 0.02  # windows scored one by one, and nats by which they may differ from those of a batch
CORPUS_FILE = "shakespeare.txt"  # of which a record is


class RecipeError(Exception):
    """A recipe broke a rule; the message says which."""


def processor_seconds() -> float:
    """Return the seconds that all processors have spent on this process and on its children that have ended."""
    times = os.times()
    return time.process_time() + times.children_user + times.children_system


def gflops() -> float:
    """Return the speed of a float32 matrix product, in billions of operations a second of processor time."""
    a = np.random.default_rng(0).standard_normal((SIZE, SIZE), "float32")
    seconds = []
    for _ in range(REPEATS + 3):  # the first ones warm up
        start = time.process_time()
        a @ a
        seconds.append(time.process_time() - start)
    return 2 * SIZE**3 / statistics.median(seconds[3:]) / 1e9


class Guard:
    """Refuse what a recipe and its model may not open: an audit hook, which Python cannot remove again."""

    def __init__(self):
        self.is_on = False
        sys.addaudithook(self)

    def __enter__(self):
        """Refuse it inside of the block."""
        self.is_on = True

    def __exit__(self, *exception):
        """Allow it again."""
        self.is_on = False

    def __call__(self, event, arguments):
        """Raise a RecipeError for the file of the corpus and for the network."""
        if not self.is_on:
            return
        if event == "open" and isinstance(arguments[0], str) and pathlib.Path(arguments[0]).name == CORPUS_FILE:
            raise RecipeError(f"The recipe opened {arguments[0]}; expected it to read the ids that it is given.")
        if event in ("socket.connect", "socket.getaddrinfo"):
            raise RecipeError("The recipe used the network; expected it to read the ids that it is given.")


def load_recipe(path: str) -> Callable:
    """Import a recipe from its file and return its `train`."""
    spec = importlib.util.spec_from_file_location("recipe", path)
    module = importlib.util.module_from_spec(spec)
    sys.modules["recipe"] = module  # where Keras's decorators and dataclasses look for it
    spec.loader.exec_module(module)
    if not callable(getattr(module, "train", None)):
        raise RecipeError("The recipe has no function train; expected train(ids, vocabulary_size, seed).")
    return module.train


def train(request: dict, guard: Guard) -> tuple[keras.Model, dict]:
    """Train one model; return it, and what was measured."""
    ids, size, seed = np.asarray(request["ids"], "int32"), request["vocabulary_size"], request["seed"]
    keras.utils.set_random_seed(seed)
    before, start, wall_start = gflops(), processor_seconds(), time.perf_counter()
    with guard:
        model = load_recipe(request["recipe"])(ids, size, seed)
    measured = {"processor_seconds": processor_seconds() - start, "wall_seconds": time.perf_counter() - wall_start}
    return model, {**measured, "gflops": [before, gflops()], "backend": keras.backend.backend()}


def score(model: keras.Model, ids: np.ndarray, vocabulary_size: int) -> dict:
    """Check that a model predicts each id from those before it in its window, and score it."""
    if not isinstance(model, keras.Model):
        raise RecipeError(f"The recipe returned a {type(model).__name__}; expected a keras.Model.")
    shape = tuple(model(ids[None, :LENGTH], training=False).shape)
    if shape != (1, LENGTH, vocabulary_size):
        raise RecipeError(f"Logits of shape {shape}; expected {(1, LENGTH, vocabulary_size)}.")
    try:
        assert_causal(model, length=LENGTH)
    except AssertionError as error:
        raise RecipeError(str(error)) from None
    evaluator = Evaluator(model)
    losses = evaluator.chunked_token_losses(ids, LENGTH)
    for row in range(min(ROWS, len(losses))):
        single = evaluator.chunked_loss(ids[row * LENGTH : (row + 1) * LENGTH + 1], LENGTH).mean
        if not abs(single - losses[row].mean()) < TOLERANCE:
            raise RecipeError(
                f"Window {row} has a loss of {losses[row].mean():.4f} among others and of {single:.4f} by itself; "
                "expected a loss that depends on nothing outside of the window."
            )
    return {"val_loss": float(losses.mean(dtype="float64")), "parameters": model.count_params()}


def main():
    """Answer two requests."""
    with os.fdopen(os.dup(1), "w", encoding="utf-8", buffering=1) as answers:
        os.dup2(2, 1)  # what a recipe prints is no answer
        request, guard = json.loads(sys.stdin.readline()), Guard()
        try:
            model, measured = train(request, guard)
            print(json.dumps(measured), file=answers)
            ids = np.asarray(json.loads(sys.stdin.readline())["ids"], "int32")
            with guard:
                scores = score(model, ids, request["vocabulary_size"])
            print(json.dumps(scores), file=answers)
        except RecipeError as error:
            print(json.dumps({"error": str(error)}), file=answers)


if __name__ == "__main__":
    main()
