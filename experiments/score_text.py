"""How surprised a trained model is by a text: nats and bits per character, and where it is surprised most.

    python -m experiments.score logs/compare/20260101-120000/lstm-seed0 --text "To be, or not to be"
    python -m experiments.score RUN --file my.txt --html my.html
    echo "To be, or not to be" | python -m experiments.score RUN --file -

RUN is the folder of a finished run of a language model; the page colours every token by its nats. Takes ten seconds,
half a minute for a hundred thousand characters. The text is read as `keras_seq.evaluation.text_score` reads it, so that the
validation split gives the warm score of its run.
"""

import dataclasses
import math
import pathlib
import sys
from typing import Annotated

import tyro

from experiments import pages
from experiments.generate import load_run
from experiments.options import check_options
from experiments.score_page import around, score_page, surprises
from experiments.startup import command_line, one_sentence
from keras_seq.atomic_files import write_text
from keras_seq.data import load_corpus
from keras_seq.evaluation import TextScore, score_text
from keras_seq.evaluation.progress_bar import scoring_bar
from keras_seq.models import Ensemble, LanguageModel
from keras_seq.tokenizers.show_whitespace import show_whitespace

LONGEST_PAGE = 100_000  # tokens; a browser is slow with more


@dataclasses.dataclass(frozen=True)
class Score:
    """How surprised a trained model is by a text."""

    run: Annotated[pathlib.Path, tyro.conf.Positional]
    """The folder of a finished run: it holds model.keras and vocabulary.json."""
    text: str | None = None
    """The text to score; or name a --file."""
    file: pathlib.Path | None = None
    """A UTF-8 file to score; - reads standard input."""
    top: int = 10
    """How many of the most surprising places to show."""
    html: pathlib.Path | None = None
    """A file for a page that colours every token by its nats."""

    def __post_init__(self):
        if (self.text is None) == (self.file is None):
            given = "neither was given" if self.text is None else "both were given"
            raise ValueError(f"--text or --file: {given}; expected one of them.")
        check_options(self, top=0)
        if self.html is not None and not self.html.parent.is_dir():
            raise ValueError(f"--html {self.html}: there is no folder {self.html.parent}.")


def load_language_model(run: pathlib.Path):
    """The model and the tokenizer of a finished run whose model predicts the next token."""
    model, tokenizer = load_run(run)
    if not isinstance(model, (LanguageModel, Ensemble)):
        raise ValueError(f"{run}: its model is no language model; expected one that predicts the next token.")
    return model, tokenizer


def text_of(settings: Score) -> str:
    """The text that was named, wherever it is."""
    if settings.text is not None:
        return settings.text
    return sys.stdin.read() if str(settings.file) == "-" else load_corpus(settings.file).text


def line_and_column(scored: TextScore, place: int) -> tuple[int, int]:
    """Where a token begins, both counted from 1."""
    before = "".join(scored.pieces[:place])
    return before.count("\n") + 1, len(before) - (before.rfind("\n") + 1) + 1


def told(scored: TextScore, top: int) -> str:
    """What the terminal shows."""
    lines = [
        f"{scored.characters:,} characters, and the first token, which nothing predicts",
        f"{scored.nats_per_character:.4f} nats per character, {scored.bits_per_character:.4f} bits per character",
    ]
    places = surprises(scored, top)
    lines += ["\nThe most surprising places:"] if places else []
    for place in places:
        nats, (line, column) = float(scored.nats[place]), line_and_column(scored, place)
        before, piece, behind = map(show_whitespace, around(scored, place))
        where = f"line {line}, column {column}"
        lines.append(f"{nats:7.2f} nats  {pages.percent(math.exp(-nats)):>14}  {where:<21}  {before}[{piece}]{behind}")
    return "\n".join(lines)


@one_sentence("experiments.score")
def main(arguments=None):
    """The command line."""
    settings = command_line(Score, "experiments.score", __doc__, arguments)
    model, tokenizer = load_language_model(settings.run)
    text = text_of(settings)
    with scoring_bar("scoring"):
        scored = score_text(model, tokenizer, text)
    if settings.html is not None and len(scored.pieces) > LONGEST_PAGE:
        raise ValueError(
            f"--html: the text has {len(scored.pieces):,} tokens, and a browser is slow with more than "
            f"{LONGEST_PAGE:,}; score a part of it, or leave out --html."
        )
    print(told(scored, settings.top))
    if settings.html is not None:
        write_text(
            settings.html, score_page(scored, pages.named(settings.run), tokenizer.vocabulary_size, settings.top)
        )
        print(f"\nPage:  {settings.html}")


if __name__ == "__main__":
    main()
