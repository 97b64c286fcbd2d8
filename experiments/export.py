"""Take a trained model somewhere else.

    python -m experiments.export RUN --to saved_model    # text in, text out, on plain TensorFlow without keras_seq
    python -m experiments.export RUN --to keras          # one .keras file from texts to logits, the vocabulary inside
    python -m experiments.export RUN --to onnx           # one step of an rnn, gru or lstm (extra "onnx")

RUN is the folder of a finished run; the result goes beside its model.keras unless --out says where. Takes seconds.

    import tensorflow as tf
    model = tf.saved_model.load("RUN/saved_model")
    model.generate("ROMEO:", tf.constant(200, tf.int64), tf.constant(0.8), tf.constant(1, tf.int64))    # seed 1
"""

import dataclasses
import pathlib
from typing import Annotated, Literal

import tyro

from experiments.generate import load_run
from experiments.options import check_options
from experiments.startup import command_line, one_sentence
from keras_seq.atomic_files import atomic_write
from keras_seq.saving.onnx_step import export_onnx
from keras_seq.saving.saved_model import export_saved_model
from keras_seq.tokenizers import CharacterTokenizer
from keras_seq.tokenizers.text_layer import with_text_input

NAMES = {"saved_model": "saved_model", "keras": "text_to_logits.keras", "onnx": "step.onnx"}


@dataclasses.dataclass(frozen=True)
class Export:
    """Take a trained model somewhere else."""

    run: Annotated[pathlib.Path, tyro.conf.Positional]
    """The folder of a finished run: it holds model.keras and vocabulary.json."""
    to: Literal[tuple(NAMES)] = "saved_model"
    """What to write."""
    out: pathlib.Path | None = None
    """Where; by default beside model.keras."""

    def __post_init__(self):
        check_options(self)


@one_sentence("experiments.export")
def main(arguments=None):
    """The command line."""
    settings = command_line(Export, "experiments.export", __doc__, arguments)
    model, tokenizer = load_run(settings.run)
    out = settings.out or settings.run / NAMES[settings.to]
    if not out.parent.is_dir():
        raise ValueError(f"--out {out}: there is no folder {out.parent}.")
    if settings.to != "onnx" and not isinstance(tokenizer, CharacterTokenizer):
        raise ValueError(f"{settings.run} has a tokenizer of {type(tokenizer).__name__}; expected one of characters.")
    if settings.to == "saved_model":
        export_saved_model(model, tokenizer, out)
    elif settings.to == "onnx":
        export_onnx(model, out)
    else:
        if out.suffix != ".keras" or out.exists():
            raise ValueError(f"--out {out}: expected the name of a new .keras file.")
        with atomic_write(out) as temporary:
            with_text_input(model, tokenizer).save(temporary)
    print(f"Written: {out}")


if __name__ == "__main__":
    main()
