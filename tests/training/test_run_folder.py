"""Finished runs are loaded whole, or refused by name."""

import shutil

import keras
import numpy as np
import pytest

from keras_seq.models import BiLSTMConfig
from keras_seq.saving import save_model
from keras_seq.training import load_language_model, load_run, write_result
from keras_seq.training.run_folder import within


@pytest.fixture
def run(finished_run, tmp_path):
    return shutil.copytree(finished_run[0], tmp_path / "logs/lstm-seed0")


def test_the_model_and_the_tokenizer_are_those_of_the_run(run):
    for load in (load_run, load_language_model):
        model, tokenizer = load(run)
        ids = tokenizer.encode("abc\ncab")
        saved = keras.models.load_model(run / "model.keras")
        np.testing.assert_array_equal(model(ids[None]), saved(ids[None]))
        assert tokenizer.decode(ids) == "abc\ncab"


def test_a_folder_that_is_no_run_is_refused_and_one_with_runs_names_them(run):
    with pytest.raises(ValueError, match=r"nowhere does not exist; expected the folder of a finished run\.$"):
        load_run(run / "nowhere")
    with pytest.raises(ValueError, match=rf"model\.keras is a file; expected its folder {run}\.$"):
        load_run(run / "model.keras")
    (run / "new").mkdir()
    with pytest.raises(ValueError, match=r"model\.keras is missing; expected the folder of a finished run\.$"):
        load_run(run / "new")
    shutil.copytree(run, run.with_name("lstm-seed1"))
    with pytest.raises(ValueError, match=rf"finished run, such as {run} or {run.with_name('lstm-seed1')}\.$"):
        load_run(run.parent)


def test_a_run_that_is_not_finished_names_how_to_finish_it(run):
    (run / "model.keras").unlink()
    remedy = f"to go on from the latest checkpoint, --resume {run} with the run's experiment"
    with pytest.raises(ValueError, match=rf"model\.keras is missing, the run is not finished; .*: {remedy}\.$"):
        load_run(run)


def test_a_model_that_is_not_that_of_the_run_is_refused_with_the_remedy(run):
    (run / "model.keras").write_bytes((run / "model.keras").read_bytes()[:-9])
    with pytest.raises(ValueError, match=f"--resume {run} with the run's experiment"):
        load_run(run)


def test_a_link_out_of_the_run_is_refused(run, tmp_path):
    shutil.move(run / "model.keras", tmp_path / "model.keras")
    (run / "model.keras").symlink_to(tmp_path / "model.keras")
    with pytest.raises(ValueError, match=r"model\.keras is a link that leads out of"):
        load_run(run)
    assert within(run, run / "tokenizer.json") == run / "tokenizer.json"


def test_a_model_that_predicts_no_next_token_is_a_run_but_no_language_model(run):
    save_model(run / "model.keras", BiLSTMConfig(num_tags=3, units=4).build_model(9))
    write_result(run, {})
    assert load_run(run)[0].output_shape[-1] == 3
    with pytest.raises(ValueError, match="is not a language model"):
        load_language_model(run)
