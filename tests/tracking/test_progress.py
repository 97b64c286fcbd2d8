import sys
import types
import typing

from keras_seq.tracking import tracker


class Shown(tracker.tqdm):
    """A bar, shown in a test too; `texts` are what it said."""

    texts: typing.ClassVar = []

    def __init__(self, *args, **options):
        super().__init__(*args, **{**options, "disable": False})

    def display(self, msg=None, pos=None):
        self.texts.append(msg or str(self))


def test_what_is_scored_is_shown_under_its_name_and_nothing_outside(monkeypatch):
    monkeypatch.setattr(tracker, "tqdm", Shown)
    monkeypatch.setattr(Shown, "texts", [])
    assert list(tracker.track_progress(range(0, 10, 4), total=11)) == [0, 4, 8]
    with tracker.scoring_bar("validating"):
        assert list(tracker.track_progress(range(0, 3, 4), total=3)) == [0]  # a single part says nothing
        assert Shown.texts == []
        assert list(tracker.track_progress(range(0, 10, 4), total=11)) == [0, 4, 8]
    assert Shown.texts[0].startswith("validating, 11 tokens:   0%")


def test_a_training_is_shown_in_tokens_with_its_loss(monkeypatch):
    monkeypatch.setattr(tracker, "tqdm", Shown)
    monkeypatch.setattr(Shown, "texts", [])
    bar = tracker.ProgressBar("a run", tokens_per_step=10, start_step=20, last_step=100)
    bar.set_model(types.SimpleNamespace(optimizer=types.SimpleNamespace(step=50)))
    bar.on_train_batch_end(0, {"loss": 1.25})
    bar.bar.refresh()
    assert Shown.texts[-1].startswith("a run:  50%|")
    assert "500/1.00k" in Shown.texts[-1]
    assert "loss=1.250" in Shown.texts[-1]
    bar.on_train_end()


def test_a_notebook_shows_bars_and_a_file_does_not(monkeypatch):
    def is_visible():
        bar = tracker.ProgressBar("a run", tokens_per_step=1, start_step=0, last_step=2).bar
        visible = not bar.disable
        bar.close()
        return visible

    assert not is_visible()  # pytest reads what is written
    shell = types.SimpleNamespace(kernel=None)
    monkeypatch.setitem(sys.modules, "IPython", types.SimpleNamespace(get_ipython=lambda: shell))
    assert is_visible()
