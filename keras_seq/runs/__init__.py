"""Train a model on a text, load a finished run, compare runs: what `keras_seq.train` and the command `keras-seq` do."""

from keras_seq.runs.run import Run, RunReport, load_run, report
from keras_seq.runs.train import train

__all__ = ["Run", "RunReport", "load_run", "report", "train"]
