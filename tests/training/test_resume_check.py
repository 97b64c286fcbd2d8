import warnings

import pytest

from keras_seq.training import CheckpointError, checksummed_json
from keras_seq.training.resume_check import check_resumable, diff

CONFIG = {
    "experiment": {"tokens": 10, "context_length": 5},
    "model": {"name": "lstm", "units": 4},
    "train": {"log_every": 5, "learning_rate": 0.1},
    "corpus": {"name": "shakespeare", "sha256": "ab"},
    "tokenizer": {"vocabulary_size": 9, "sha256": "cd"},
    "seed": 0,
    "budget": {"steps": 10},
    "environment": {"cores": 2, "threads": "one a core", "processor": "one"},
    "versions": {"keras_seq": "0.2.0", "tensorflow": "2.21", "commit": "123"},
}


@pytest.fixture
def run(tmp_path):
    """A run with a checkpoint, as far as anybody looks."""
    (tmp_path / "checkpoints").mkdir()
    (tmp_path / "checkpoints/step-00000004.safetensors").touch()
    checksummed_json.write(tmp_path / "config.json", CONFIG)
    return tmp_path


def changed(part, **values):
    return {**CONFIG, part: {**CONFIG[part], **values}}


def test_differences_are_the_leaves_that_are_not_equal_as_json_has_them():
    before = {"a": 1, "b": {"c": [1, 2], "d": None}, "e": 5}
    assert diff(before, {"a": 1, "b": {"c": (1, 2), "d": 3}, "f": 6}) == {
        "b.d": (None, 3),
        "e": (5, None),
        "f": (None, 6),
    }


@pytest.mark.parametrize(
    ("part", "values", "message"),
    [
        ("corpus", {"sha256": "xy"}, "corpus.sha256 was 'ab' and is 'xy'"),
        ("tokenizer", {"sha256": "xy"}, "tokenizer.sha256"),
        ("model", {"units": 5}, "model.units was 4 and is 5"),
        ("model", {"dropout": 0.5}, "model.dropout was None and is 0.5"),
        ("train", {"learning_rate": 0.2}, "train.learning_rate"),
        ("versions", {"keras_seq": "9"}, "versions.keras_seq"),
    ],
)
def test_what_matters_has_to_be_as_it_was_and_is_named_if_not(run, part, values, message):
    with pytest.raises(CheckpointError, match=message):
        check_resumable(run, changed(part, **values))
    with pytest.raises(CheckpointError) as both:
        check_resumable(run, {**changed(part, **values), "seed": 1})
    assert message in str(both.value)
    assert "seed was 0 and is 1" in str(both.value)


@pytest.mark.parametrize(
    ("part", "values"),
    [
        ("train", {"log_every": 7, "tracker": "wandb"}),
        ("budget", {"steps": 20}),
        ("experiment", {"tokens": 20, "context_length": 6}),
    ],
)
def test_intervals_lengths_and_the_tracker_may_change(run, part, values):
    check_resumable(run, changed(part, **values))


@pytest.mark.parametrize("values", [{"tensorflow": "2.22"}, {"commit": None}])
def test_other_versions_of_what_is_around_are_a_warning(run, values):
    with pytest.warns(UserWarning, match=f"resumes with other versions: versions.{next(iter(values))}"):
        check_resumable(run, changed("versions", **values))


@pytest.mark.parametrize(
    "values",
    [{"backend": "jax"}, {"cores": 1}, {"threads": "TF_NUM_INTRAOP_THREADS=1"}, {"processor": "another"}],
)
def test_another_backend_machine_or_other_cores_are_a_warning(run, values):
    expected = f"on another backend, machine or other cores: environment.{next(iter(values))} was .* last bits"
    with pytest.warns(UserWarning, match=expected):
        check_resumable(run, changed("environment", **values))


@pytest.mark.parametrize("steps", [5, None])
def test_lengths_do_not_become_smaller(run, steps):
    with pytest.raises(CheckpointError, match=f"budget.steps was 10 and is {steps}"):
        check_resumable(run, changed("budget", steps=steps))


def test_where_nothing_can_go_on_nothing_is_compared(run):
    other = changed("model", units=5)
    (run / "checkpoints/step-00000004.safetensors").unlink()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check_resumable(run, other)
        check_resumable(run / "nowhere", other)


@pytest.mark.parametrize("text", ["", "{", "[1]", "3"])
def test_a_corrupt_config_is_an_error_of_the_run(run, text):
    (run / "config.json").write_text(text)
    with pytest.raises(CheckpointError, match=r"config\.json is corrupt.*remove .* to train this run anew\."):
        check_resumable(run, CONFIG)
