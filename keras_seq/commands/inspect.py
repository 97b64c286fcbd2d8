"""Inspect what a model computes for a text: predictions, attention, gates, memory.

    keras-seq inspect logs/compare/20260101-120000-docstrings/transformer-seed0 --text "To be, or not to be"
    keras-seq inspect RUN --text "The cat sat" --source-text "The dog sat"   # patches, layer by layer
    keras-seq inspect RUN --out FOLDER

Time: 20 to 60 seconds.

RUN is the folder of a finished run of a language model. RUN/inspect, or FOLDER, gets an interactive page, inspect.html,
and plots as PNG files.
"""

import dataclasses
import itertools
import pathlib
from collections.abc import Sequence

from tqdm import tqdm

from keras_seq.commands.exit_status import exit_with_message
from keras_seq.commands.options import RunFolder, check_options, command_line
from keras_seq.files import write_text
from keras_seq.interpretability.traces import ModelTrace, plot_trace, trace_model
from keras_seq.reports import plots
from keras_seq.reports.inspection import Findings, find, inspect_page, plot_findings
from keras_seq.reports.pages import percent
from keras_seq.runs.finished_run import Unknown, example_text, handle_unknown
from keras_seq.tokenizers.base import show_whitespace
from keras_seq.training import load_language_model
from keras_seq.training.run_folder import within

MAX_TOKENS = 200  # for a model without a context length


@dataclasses.dataclass(frozen=True)
class InspectModelConfig:
    """Inspect what a trained language model computes for a text."""

    run: RunFolder
    text: str | None = None
    """Text to run the model on; it is cut to the model's context length, or to 200 tokens. By default a passage of the
    text that the run was validated on if its corpus is built in, else a sentence."""
    source_text: str | None = None
    """Another text of as many tokens; the page then shows how the last prediction changes if the output of one layer at
    one token is taken from it (activation patching)."""
    unknown: Unknown = "error"
    """What to do with characters of the texts that the model does not know: stop with an error, or drop them."""
    out: pathlib.Path | None = None
    """Folder to write to; by default inspect/ in the folder of the run."""

    def __post_init__(self):
        check_options(self)
        if self.source_text == "":
            raise ValueError("--source-text is empty; expected another text of as many tokens.")
        if self.out is not None and self.out.exists() and not self.out.is_dir():
            raise ValueError(f"--out {self.out}: it is a file; expected a folder, or an unused name.")


def truncate(model, ids, option="--text"):
    """Return at least two ids, cut to what the model takes and the page can show, and a message if they were cut."""
    if len(ids) < 2:
        raise ValueError(f"{option} has {len(ids)} tokens; expected at least 2.")
    max_tokens = model.context_length or MAX_TOKENS
    if len(ids) <= max_tokens:
        return ids, None
    reason = f"the model's context length is {max_tokens}" if model.context_length else "more cannot be displayed well"
    return ids[:max_tokens], f"Only the first {max_tokens} of the {len(ids)} tokens are used: {reason}."


def write_outputs(folder: pathlib.Path, trace: ModelTrace, findings: Findings, run: pathlib.Path):
    """Write the page and the plots."""
    write_text(folder / "inspect.html", inspect_page(trace, run, findings))
    with plots.style():
        for name, figure in itertools.chain(plot_trace(trace), plot_findings(trace, findings)):
            plots.save(figure, folder / f"{name}.png")


@exit_with_message("keras-seq inspect")
def main(arguments: Sequence[str]):
    """Run the command line."""
    config = command_line(InspectModelConfig, "keras-seq inspect", __doc__, arguments)
    model, tokenizer = load_language_model(config.run)
    text, unknown = (example_text(config.run), "drop") if config.text is None else (config.text, config.unknown)
    ids, message = truncate(model, tokenizer.encode(handle_unknown(text, tokenizer, unknown)))
    source_ids = None
    if config.source_text is not None:
        source_ids = tokenizer.encode(handle_unknown(config.source_text, tokenizer, unknown))
        source_ids, _ = truncate(model, source_ids, "--source-text")
    folder = within(config.run, config.run / "inspect") if config.out is None else config.out
    folder.mkdir(parents=True, exist_ok=True)  # before what takes long
    with tqdm(total=3, bar_format="{desc} ({n} of {total} done, {elapsed})", leave=False, disable=None) as progress:
        progress.set_description_str(f"Running the model on {len(ids)} tokens")
        trace = trace_model(model, tokenizer, ids)
        progress.update()
        progress.set_description_str("Probing what its layers know, which takes most of the time")
        findings = find(model, tokenizer, ids, source_ids)
        progress.update()
        progress.set_description_str("Drawing")
        write_outputs(folder, trace, findings, config.run)
    if message and config.text is not None:
        print(message)
    predictions = trace.top_predictions()[-1]
    line = "   ".join(f"{show_whitespace(token)} {percent(p)}" for token, p in predictions)
    print(f"Predictions after the last token:  {line}")
    print(*findings.sentences(), sep="\n")
    print(f"Page:   {folder / 'inspect.html'}\nPlots:  {folder}/*.png")
