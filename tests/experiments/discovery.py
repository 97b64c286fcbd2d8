"""The experiments, found as `python -m experiments` finds them."""

from experiments.common.catalog import load_main as main_of
from experiments.common.catalog import scripts
from tests.processes import ROOT

__all__ = ["COMPARED", "ROOT", "SMOKE_OPTIONS", "experiments", "main_of"]

# a state that steps, one that is scanned, both windows; test_without_tensorflow.py, which is rare, compares all models
COMPARED = "lstm", "mamba", "hybrid", "transformer"
SMOKE_OPTIONS = {"compare": ("--models", *COMPARED), "shakespeare": ("--corpus", "pydoc")}


def experiments():
    """The names of the experiments that train."""
    return [name for name, path in scripts().items() if "experiment_main(" in path.read_text(encoding="utf-8")]
