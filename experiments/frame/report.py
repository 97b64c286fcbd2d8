"""Report an experiment: a verdict, a table, notes and samples, in the terminal, in NAME.md and in NAME.json.

terminal   verdict, the columns of the table that fit into 80 characters, samples, files, the next commands
NAME.md    title, verdict, the whole table, notes, details (images, further tables), samples
"""

import dataclasses
import pathlib
import sys
import textwrap
from collections.abc import Sequence
from typing import Any

from experiments.frame.shell import command, python
from experiments.frame.tables import Table, indented
from keras_seq.files import write_json, write_text

TENSORBOARD_ADDRESS = "http://localhost:6006/?smoothing=0"
WIDTH = 80  # of a terminal, in characters


@dataclasses.dataclass(frozen=True)
class Report:
    """The results of an experiment.

    Args:
        title: Heading: what was trained on what.
        verdict: One or two sentences: what was found, and how certain that is.
        table: All results.
        columns: Names of the columns for the terminal; together at most 80 characters wide.
        data: What NAME.json holds.
        notes: Definitions and units of the columns.
        details: Further Markdown and tables of NAME.md, in order.
        samples: Texts by their headings.
        failures: Sentences for standard error; if there are any, the exit status is 1.
        runs: Run folders of language models, for the commands to look at one of them.
    """

    title: str
    verdict: str
    table: Table
    columns: Sequence[str]
    data: Any
    notes: str = ""
    details: Sequence[str | Table] = ()
    samples: dict[str, str] = dataclasses.field(default_factory=dict)
    failures: Sequence[str] = ()
    runs: Sequence[pathlib.Path] = ()

    def write(self, folder: pathlib.Path, name: str):
        """Write NAME.json and NAME.md into the folder of the runs."""
        write_json(folder / f"{name}.json", self.data)
        samples = [f"## {heading}\n\n{indented(text)}" for heading, text in self.samples.items()]
        parts = [f"# {self.title}", self.verdict, str(self.table), self.notes, *map(str, self.details), *samples]
        write_text(folder / f"{name}.md", "\n\n".join(filter(None, parts)) + "\n")

    def message(self, folder: pathlib.Path) -> str:
        """Return what the terminal shows at the end."""
        samples = [f"{heading}:\n{indented(text.strip())}" for heading, text in self.samples.items()]
        files = [path for suffix in ("html", "md", "png") for path in sorted(folder.glob(f"*.{suffix}"))]
        listing = "\n".join(["Files:", *(f"    {path}" for path in files)])
        parts = [fill(self.verdict), str(self.table.select(*self.columns)), *samples, listing, self._commands(folder)]
        return "\n" + "\n\n".join(parts)

    def _commands(self, folder):
        lines = ["To view the curves in TensorBoard:", f"    {tensorboard_command(folder)}"]
        lines += [f"    then open {TENSORBOARD_ADDRESS}    (smoothing off: it hides where few points cross)"]
        if self.runs:
            score = python("-m", "experiments.score_text", self.runs[0], "--text", "Some text.", "--html", "score.html")
            lines += ["To see how a model reads a text:", f"    {score}"]
            lines += [f"    {python('-m', 'experiments.inspect_model', self.runs[0])}"]
        return "\n".join(lines)


def fill(text: str) -> str:
    """Wrap text to the width of a terminal."""
    return textwrap.fill(text, WIDTH, break_on_hyphens=False, break_long_words=False)


def without_texts(rows: Sequence[dict]) -> list[dict]:
    """Return rows of results without their samples, for NAME.json."""
    return [{key: value for key, value in row.items() if key not in ("sample", "predictions")} for row in rows]


def tensorboard_command(folder: pathlib.Path) -> str:
    """Return the command line that opens the runs of a folder in TensorBoard."""
    installed = pathlib.Path(sys.executable).with_name("tensorboard")
    return command(str(installed) if installed.exists() else "tensorboard", "--logdir", pathlib.Path(folder))
