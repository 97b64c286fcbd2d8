"""Pictures of experiments, and how their scripts fail."""

import matplotlib.pyplot as plt
import pytest

from keras_seq.reports import plots
from tests.experiments.discovery import main_of


@pytest.fixture
def drawn(monkeypatch):
    """Return the axes of the figure that a function of an experiment draws, which is not written."""

    def drawn(plot, *arguments):
        with monkeypatch.context() as patched:
            patched.setattr(plots, "save", lambda figure, path: None)
            plot(*arguments)
        axes = plt.gcf().axes
        plt.close("all")
        return axes

    return drawn


@pytest.fixture
def refuses(fails, tmp_path):
    """Assert that a mistake on the command line is named, by default by its words, and that nothing is left behind."""

    def refuses(name, arguments, *named):
        named = named or (arguments,)
        sentence = fails(main_of(name), "--log-dir", tmp_path / "logs", *arguments.split())
        assert all(word in sentence for word in named), sentence
        assert not (tmp_path / "logs").exists()

    return refuses
