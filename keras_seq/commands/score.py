"""Score a text: nats and bits per character, and the tokens with the highest loss.

    keras-seq score logs/compare/20260101-120000-docstrings/lstm-seed0 --text "To be, or not to be"
    keras-seq score RUN --file my.txt --html my.html
    echo "To be, or not to be" | keras-seq score RUN --file -
    keras-seq score RUN --file my.txt --adapt 0.001     # the model learns from what it has scored

Time: 10 seconds, or 30 for a hundred thousand characters.

The validation split gives the val_loss_streaming of its run.
"""

import dataclasses
import math
import pathlib
from collections.abc import Sequence

import numpy as np

from keras_seq.commands.exit_status import exit_with_message
from keras_seq.commands.options import RunFolder, check_options, check_other_file, command_line
from keras_seq.data import load_corpus
from keras_seq.evaluation import DynamicEvaluation, TextScore, score_text
from keras_seq.files import write_text
from keras_seq.reports.pages import describe_run, percent, render, run_label
from keras_seq.runs.finished_run import RUNTIMES, Unknown, handle_unknown, load_exported, read_standard_input
from keras_seq.tracking.tracker import scoring_bar
from keras_seq.training import load_language_model

MAX_HTML_TOKENS = 100_000  # browsers are slow with more


@dataclasses.dataclass(frozen=True)
class ScoreTextConfig:
    """Score a text with a trained language model."""

    run: RunFolder
    text: str | None = None
    """Text to score; or give a --file."""
    file: pathlib.Path | None = None
    """UTF-8 file to score; - reads standard input."""
    unknown: Unknown = "error"
    """What to do with characters that the model does not know: stop with an error, or drop them."""
    adapt: float | None = None
    """Learning rate with which the model learns from what it has scored, such as 0.001 (dynamic evaluation); by default
    it stays as it is."""
    num_highest_losses: int = 10
    """Number of tokens with the highest loss to show."""
    html: pathlib.Path | None = None
    """HTML file to write, with every token colored by its loss."""

    def __post_init__(self):
        if (self.text is None) == (self.file is None):
            received = "neither was given" if self.text is None else "both were given"
            raise ValueError(f"--text or --file: {received}; expected one of them.")
        if self.file is not None and str(self.file) != "-" and not self.file.exists():
            raise ValueError(f"--file {self.file}: it does not exist; expected a UTF-8 file, or - for standard input.")
        check_options(self, num_highest_losses=0, adapt=0)
        if self.html is not None and not self.html.parent.is_dir():
            raise ValueError(f"--html {self.html}: expected an existing folder; {self.html.parent} is none.")
        if self.html is not None and self.html.is_dir():
            raise ValueError(f"--html {self.html}: it is a folder; expected a file.")
        check_other_file("--html", self.html, "--file", self.file)


def read_text(config: ScoreTextConfig) -> str:
    """Return the text of --text or --file."""
    if config.text is not None:
        return config.text
    return read_standard_input() if str(config.file) == "-" else load_corpus(config.file).text


def format_report(score: TextScore, num_highest_losses: int) -> str:
    """Format the message for the terminal."""
    highest = score.highest_losses(num_highest_losses)
    lines = [
        f"{score.num_characters:,} characters, without the first token, which is not predicted"
        if score.tokens[0]
        else f"{score.num_characters:,} characters, after {score.piece(0)}, which is not predicted",
        f"{score.loss_per_character:.4f} nats per character, {score.bits_per_character:.4f} bits per character",
        *(["\nTokens with the highest loss:"] if highest else []),
    ]
    for one in highest:
        location, context = f"line {one.line}, column {one.column}", f"{one.prefix}[{one.token}]{one.suffix}"
        lines.append(f"{one.loss:7.2f} nats  {percent(math.exp(-one.loss)):>14}  {location:<21}  {context}")
    return "\n".join(lines)


def score_page(score: TextScore, run: pathlib.Path, vocabulary_size: int, num_highest_losses: int) -> str:
    """Return the page, with tokens in full color if a uniform guess is no worse: at log V nats or more."""
    uniform_loss = math.log(vocabulary_size) or 1.0  # of a single token every loss is 0
    shades = np.clip(score.token_losses / uniform_loss, 0, 1).tolist()
    return render(
        "score",
        title=f"How well {describe_run(run)} predicts a text",
        run=run_label(run),
        score=score,
        tokens=[*zip(map(score.piece, range(len(score.tokens))), score.token_losses.tolist(), shades, strict=True)],
        uniform_loss=uniform_loss,
        highest=score.highest_losses(num_highest_losses),
    )


@exit_with_message("keras-seq score")
def main(arguments: Sequence[str]):
    """Run the command line."""
    config = command_line(ScoreTextConfig, "keras-seq score", __doc__, arguments)
    is_exported = config.run.suffix in RUNTIMES
    model, tokenizer = (load_exported if is_exported else load_language_model)(config.run)
    text = handle_unknown(read_text(config), tokenizer, config.unknown)
    if config.html is not None and (num_tokens := len(tokenizer.encode(text))) > MAX_HTML_TOKENS:
        raise ValueError(
            f"--html: the text has {num_tokens:,} tokens; expected at most {MAX_HTML_TOKENS:,}, because "
            "browsers are slow with more: score a part of the text, or omit --html."
        )
    with scoring_bar("scoring"):
        adapt = None if config.adapt is None else DynamicEvaluation(config.adapt)
        score = score_text(model, tokenizer, text, adapt=adapt)
    print(format_report(score, config.num_highest_losses))
    if config.html is not None:
        write_text(config.html, score_page(score, config.run, tokenizer.vocabulary_size, config.num_highest_losses))
        print(f"\nPage:  {config.html}")
