"""Run `compare --smoke` with every language model, from the weights that TensorFlow began with.

KERAS_BACKEND=jax python -m tests.experiments.compare_losses FOLDER     TensorFlow first, which leaves the weights there
"""

import json
import pathlib
import sys
from unittest import mock

import keras
import numpy as np

from experiments.compare import __main__ as compare
from keras_seq.models import LANGUAGE_MODELS
from keras_seq.tracking import scored_key
from keras_seq.training import optimizers, read_metrics


def main(folder):
    """Leave the losses of all models, training's and validation's, in BACKEND.json."""
    backend, train = keras.backend.backend(), compare.training.train_language_model

    def train_from_the_same_weights(run, model, *args, **options):
        path = folder / f"{run.name}.npz"
        if backend == "tensorflow":
            np.savez(path, *model.get_weights())
        model.set_weights([*np.load(path).values()])
        return train(run, model, *args, **options)

    in_float32 = mock.patch.object(optimizers, "_muon_dtype", return_value=None)  # bfloat16 rounds otherwise in each
    with in_float32, mock.patch.object(compare.training, "train_language_model", train_from_the_same_weights):
        # At the default rate the loss of a Gated DeltaNet moves by 1e-3 if its weights move by their rounding.
        options = ["--train.learning-rate", "0.005", "--recall-steps", "0", "--models", *LANGUAGE_MODELS]
        compare.main(["--smoke", "--log-dir", str(folder / backend), *options])
    losses = {}
    for name in LANGUAGE_MODELS:
        (run,) = (folder / backend).glob(f"compare/*/{name}-seed0")
        result = json.loads((run / "result.json").read_text())
        losses[name] = {
            "loss": [line["loss"] for line in read_metrics(run, "train")],
            "val_loss": [
                *(line[scored_key("val_loss", line)] for line in read_metrics(run, "validation")),
                result["val_loss"],
            ],
            "val_loss_streaming": [result["val_loss_streaming"]],
        }
    (folder / f"{backend}.json").write_text(json.dumps(losses))


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]))
