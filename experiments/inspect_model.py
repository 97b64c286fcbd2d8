"""Look inside a trained model while it reads a text: what it expects next, where it attends, what its gates do.

    python -m experiments.inspect logs/compare/20260101-120000/transformer-seed0 --text "To be, or not to be"
    python -m experiments.inspect RUN --out FOLDER

RUN is the folder of a finished run of a language model. Into RUN/inspect or FOLDER go inspect.html, a page to hover
over or tap, pictures, and the same pictures for TensorBoard. Takes ten to thirty seconds.
"""

import dataclasses
import pathlib
from typing import Annotated

import tensorflow as tf
import tyro

from experiments import pages, pictures
from experiments.generate import within
from experiments.inspect_page import inspect_page
from experiments.inspect_pictures import figures
from experiments.inspect_reading import Reading, read
from experiments.options import check_options
from experiments.report import to_look
from experiments.score import load_language_model
from experiments.startup import command_line, one_sentence
from keras_seq.atomic_files import write_text
from keras_seq.tokenizers.show_whitespace import show_whitespace

LONGEST = 200  # tokens, where the model itself sets no limit


@dataclasses.dataclass(frozen=True)
class Inspect:
    """Look inside a trained model while it reads a text."""

    run: Annotated[pathlib.Path, tyro.conf.Positional]
    """The folder of a finished run: it holds model.keras and vocabulary.json."""
    text: str = "The king is not the man that he was."
    """What the model reads: as much as its context holds, or 200 tokens."""
    out: pathlib.Path | None = None
    """The folder for what is written; by default inspect/ in that of the run."""

    def __post_init__(self):
        check_options(self)


def shortened(model, ids):
    """The ids that are read, and a sentence if those are not all; a ValueError for fewer than two."""
    if len(ids) < 2:
        raise ValueError(f"--text has {len(ids)} tokens; expected at least 2.")
    longest = model.context or LONGEST
    if len(ids) <= longest:
        return ids, None
    why = f"the model's context is {longest}" if model.context else "more cannot be shown well"
    return ids[:longest], f"Only the first {longest} of the {len(ids)} tokens are read: {why}."


def write(folder: pathlib.Path, reading: Reading, run: str):
    """Writes the page, the pictures, and the pictures for TensorBoard: there, each call is a step of its own."""
    folder.mkdir(parents=True, exist_ok=True)
    step = len(list(folder.glob("events.out.tfevents.*")))
    with tf.summary.create_file_writer(str(folder)).as_default():
        for name, figure in figures(reading):
            pictures.save(figure, folder / f"{name}.png")
            tf.summary.image(name, pictures.pixels(figure)[None], step=step)
    write_text(folder / "inspect.html", inspect_page(reading, run))


@one_sentence("experiments.inspect")
def main(arguments=None):
    """The command line."""
    settings = command_line(Inspect, "experiments.inspect", __doc__, arguments)
    model, tokenizer = load_language_model(settings.run)
    ids, told = shortened(model, tokenizer.encode(settings.text).numpy())
    reading = read(model, tokenizer, ids)
    folder = within(settings.run, settings.run / "inspect") if settings.out is None else settings.out
    write(folder, reading, pages.named(settings.run))
    if told:
        print(told)
    expected = "   ".join(f"{show_whitespace(piece)} {pages.percent(p)}" for piece, p in reading.likeliest()[-1])
    print(f"Behind the last token it expects:  {expected}")
    print(f"Page:      {folder / 'inspect.html'}\nPictures:  {folder}/*.png\n{to_look(folder)}")


if __name__ == "__main__":
    main()
