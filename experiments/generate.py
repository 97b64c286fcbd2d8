"""Write text with a trained model.

    python -m experiments.generate logs/compare/20260101-120000/lstm-seed0 --prompt "ROMEO:" --length 500 --top-k 40

RUN is the folder of a finished run. Takes seconds.
"""

import dataclasses
import pathlib
from typing import Annotated

import keras
import tyro

from experiments.startup import command_line, one_sentence
from keras_seq.generation import Generator
from keras_seq.text import load_tokenizer


@dataclasses.dataclass(frozen=True)
class Generate:
    """Write text with a trained model."""

    run: Annotated[pathlib.Path, tyro.conf.Positional]
    """The folder of a finished run: it holds model.keras and vocabulary.json."""
    prompt: str = "\n"
    """What the text begins with."""
    length: int = 500
    """New characters."""
    temperature: float = 0.8
    """0 takes the likeliest character, 1 draws from the model as it is."""
    top_k: int | None = None
    """Draw among this many of the likeliest characters only."""
    seed: int = 0
    """The same seed gives the same text."""


def load_run(run: pathlib.Path):
    """The model and the tokenizer of a finished run."""
    for name in ("model.keras", "vocabulary.json"):
        if not (run / name).is_file():
            raise ValueError(f"{run}: {name} is not there; expected the folder of a finished run.")
    return keras.models.load_model(run / "model.keras", compile=False), load_tokenizer(run / "vocabulary.json")


@one_sentence("experiments.generate")
def main(arguments=None):
    """The command line."""
    settings = command_line(Generate, "experiments.generate", __doc__, arguments)
    model, vocabulary = load_run(settings.run)
    print(
        Generator(model, vocabulary)(
            settings.prompt, settings.length, settings.temperature, settings.top_k, settings.seed
        )
    )


if __name__ == "__main__":
    main()
