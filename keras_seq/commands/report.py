"""Compare finished runs of the same validation text: intervals, curves, and a page.

    keras-seq report RUN_A RUN_B                                # writes logs/report/UTC-TIME
    keras-seq report logs/compare/TIME/*-seed* --out FOLDER

Time: seconds.

RUN is the folder of a finished run, of keras-seq train or experiments.compare. Runs that differ in their seed only are
one model. The first run is what the others are compared with.
"""

import dataclasses
import pathlib
from collections.abc import Sequence
from typing import Annotated

import tyro

from keras_seq.commands.exit_status import exit_with_message
from keras_seq.commands.options import check_options, command_line
from keras_seq.runs import report


@dataclasses.dataclass(frozen=True)
class ReportConfig:
    """Compare finished runs."""

    runs: Annotated[tuple[pathlib.Path, ...], tyro.conf.Positional, tyro.conf.arg(metavar="RUN")]
    """Folders of finished runs."""
    out: pathlib.Path | None = None
    """Folder to write compare.html, compare.md, compare.json and loss_curves.png to; by default
    logs/report/UTC-TIME."""

    def __post_init__(self):
        check_options(self)
        if not self.runs:
            raise ValueError("RUN: expected one or more folders of finished runs.")
        if self.out is not None and self.out.exists() and not self.out.is_dir():
            raise ValueError(f"--out {self.out}: it is a file; expected a folder, or an unused name.")


@exit_with_message("keras-seq report")
def main(arguments: Sequence[str]):
    """Run the command line."""
    config = command_line(ReportConfig, "keras-seq report", __doc__, arguments)
    written = report(config.runs, config.out)
    print(written.report.message(written.folder))
