"""`keras_seq.train`: the run of an experiment and of the command, refused where it would be another one."""

import dataclasses
import functools
import json
import math
import os
import re
import signal

import keras
import numpy as np
import pytest

import keras_seq
from experiments.compare.settings import SMOKE, CompareConfig
from keras_seq.commands import train as command
from keras_seq.commands.options import replaced
from keras_seq.models import GRUConfig, LanguageModelConfig, LSTMConfig, TransformerConfig
from keras_seq.runs import load_run, train
from keras_seq.tokenizers import CharacterTokenizer
from tests.runs.conftest import INTERVALS, MODELS, OPTIONS, SIZES
from tests.training.ends import CLOCKS, differences, end

WORDS = ["--lstm.embedding-dim", "4", "--lstm.units", "6"]
WORDS += [word for name, value in SIZES.items() for word in (f"--{name.replace('_', '-')}", str(value))]
WORDS += [word for name, value in INTERVALS.items() for word in (f"--train.{name.replace('_', '-')}", str(value))]


@pytest.mark.usefixtures("eagerly")
def test_a_run_writes_scores_and_says_what_it_is(trained, text):
    run = trained()
    assert run.generate("To be", 5).startswith("To be")
    assert len(run.generate("To be", 5)) == 10
    assert "".join(run.stream("To be", 5, seed=3)) == run.generate("To be", 5, seed=3)[5:]
    assert run.score("To be, or not").num_characters == 12
    assert run.config["experiment"]["texts"] == str(text)
    assert (run.name, run.result["train_tokens"]) == ("lstm", 240)
    assert repr(run).startswith(f"<Run {run.folder}: lstm, {run.result['parameters']:,} parameters, val_loss ")
    assert f"{run.result['val_loss_per_character']:.3f}" in run._repr_html_()
    assert load_run(run.folder).result == run.result


def test_the_sample_of_a_page_is_no_markup(trained):
    run = dataclasses.replace(trained(), result={**trained().result, "sample": "<script>alert(1)</script>"})
    assert "<script>" not in run._repr_html_()


@pytest.mark.usefixtures("eagerly")
def test_windows_are_stateful_if_all_of_the_text_is_read_and_a_run_that_goes_on_keeps_its_own(trained, text, tmp_path):
    assert trained().config["windows"] == "stateful"
    options = {**OPTIONS, "folder": tmp_path / "run"}
    for tokens in (120, 240):
        run = train(text, MODELS["lstm"], **{**options, "tokens": tokens})
        assert (run.config["windows"], run.result["train_tokens"]) == ("random", tokens)


@pytest.mark.usefixtures("eagerly")
def test_the_same_call_again_returns_the_same_run(trained, text):
    run = trained()
    before = end(run.folder)
    again = train(text, MODELS["lstm"], folder=run.folder, **OPTIONS)
    assert not differences(end(run.folder), before)
    assert plain(again.result) == plain(run.result)


@pytest.mark.usefixtures("eagerly")
@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"learning_rate": 0.5}, "train.learning_rate was "),
        ({"batch_size": 3}, "batch_size was 2 and is 3"),
        ({"sequence_length": 10}, "sequence_length was 12 and is 10"),
        ({"seed": 1}, "seed was 0 and is 1"),
        ({"tokens": 120}, "length.steps was 10 and is 5"),
        ({"model": LSTMConfig(embedding_dim=4, units=7)}, "model.units was 6 and is 7"),
        ({"model": GRUConfig(embedding_dim=4, units=6)}, "is a run of lstm, not of gru; expected another folder"),
        ({"texts": "other"}, "corpus.sha256 was "),
    ],
)
def test_other_settings_in_the_same_folder_are_refused_by_name(trained, text, tmp_path, changes, named):
    run = trained()
    before = {path: path.read_bytes() for path in run.folder.rglob("*") if path.is_file()}
    options = {"texts": text, "model": MODELS["lstm"], **OPTIONS, **changes}
    if options["texts"] == "other":
        options["texts"] = tmp_path / text.name
        options["texts"].write_text(text.read_text().replace("not", "hot"))
    with pytest.raises(ValueError, match=re.escape(named)):
        train(options.pop("texts"), folder=run.folder, **options)
    assert {path: path.read_bytes() for path in before} == before


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"tokens": 0}, "tokens=0"),
        ({"minutes": 1, "tokens": 240}, "minutes=1 and tokens=240; expected one of them"),
        ({"batch_size": 2.5}, "batch_size=2.5"),
        ({"minutes": 0}, "minutes=0"),
        ({"minutes": float("nan")}, "minutes=nan"),
        ({"model": "ltsm"}, "model='ltsm'; expected rnn, gru, lstm, "),
        ({"model": 3}, "model=3; expected the name of a model, its config, or a keras.Model"),
        ({"model": TransformerConfig(context_length=8)}, "context_length=8; expected at least the sequence_length, 12"),
        ({"sequence_length": 1000}, "is too short"),
        ({"model": LSTMConfig}, "models.families.recurrent.LSTMConfig'>; expected the name of a model, its config"),
        ({"seed": -1}, "seed=-1"),
        ({"seed": None}, "seed=None"),
        ({"callbacks": None}, "callbacks=[None]; expected a list of keras.callbacks.Callback"),
        ({"callbacks": "x"}, "callbacks=['x']; expected a list of keras.callbacks.Callback"),
        ({"folder": ""}, "folder=''; expected the path of a folder"),
        ({"folder": 3}, "folder=3; expected the path of a folder"),
        ({"texts": None}, "texts=None; expected a name or path of a text"),
        ({"texts": [b"x"]}, "texts=[b'x']; expected a name or path of a text"),
    ],
)
def test_a_mistake_is_named_and_leaves_nothing(text, tmp_path, monkeypatch, options, message):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match=re.escape(message)):
        train(**{"texts": text, "model": MODELS["lstm"], **OPTIONS, **options})
    assert not [*tmp_path.iterdir()]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"epochs": 3}, "no argument epochs=3; the length is tokens, or minutes"),
        ({"learning_rat": 0.1}, "no argument learning_rat=0.1; perhaps you meant learning_rate"),
    ],
)
def test_an_argument_that_there_is_not_is_named(text, options, message):
    with pytest.raises(TypeError, match=re.escape(message)):
        train(text, **options)


def test_a_folder_of_something_else_is_left_as_it_is(text, tmp_path):
    (tmp_path / "tokenizer.json").write_text("that of a folder of ids")
    (tmp_path / ".hidden").touch()
    with pytest.raises(ValueError, match=r"holds tokenizer\.json and is no run; expected the folder of a run"):
        train(text, model=MODELS["lstm"], folder=tmp_path, **OPTIONS)
    assert {path.name for path in tmp_path.iterdir()} == {"tokenizer.json", ".hidden"}


@pytest.mark.usefixtures("eagerly")
def test_numbers_of_numpy_are_numbers(text, tmp_path):
    options = {**OPTIONS, "tokens": np.int64(OPTIONS["tokens"]), "learning_rate": np.float32(0.01)}
    run = train(text, model=LSTMConfig(embedding_dim=4, units=np.int64(6)), folder=tmp_path / "run", **options)
    assert run.config["model"]["units"] == 6
    again = train(text, model=LSTMConfig(embedding_dim=4, units=np.int64(6)), folder=tmp_path / "run", **options)
    assert again.result["val_loss"] == run.result["val_loss"]


def test_a_text_in_the_place_of_its_path_is_not_repeated():
    with pytest.raises(ValueError, match=r"is a text of 4,300 characters; expected a path") as caught:
        train("To be, or not to be, that is the question.\n" * 100)
    assert len(str(caught.value)) < 200


def test_a_file_is_no_folder_of_a_run(text):
    with pytest.raises(ValueError, match=r"text\.txt' is a file; expected a folder or an unused name"):
        train(text, folder=text, **OPTIONS)


@pytest.mark.usefixtures("eagerly")
@pytest.mark.filterwarnings("ignore:own reads the whole text again")
def test_a_causal_model_of_keras_is_trained_as_it_is(text, tmp_path):
    size = CharacterTokenizer.from_text(text.read_text()).vocabulary_size
    ids = keras.Input((None,), dtype="int32")
    x = keras.layers.LSTM(5, return_sequences=True)(keras.layers.Embedding(size, 4)(ids))
    model = keras.Model(ids, keras.layers.Dense(size)(x), name="own")
    run = train(text, model, folder=tmp_path / "own", **OPTIONS)
    assert (run.name, run.config["windows"], run.result["parameters"]) == ("own", "random", model.count_params())
    assert run.generate("To be", 5).startswith("To be")
    assert run.score("To be, or not").loss_per_character > 0


@pytest.mark.usefixtures("eagerly")
@pytest.mark.filterwarnings("ignore:.*reads the whole text again")
def test_a_model_without_a_name_goes_on_when_its_cell_is_run_again(text, tmp_path):
    size = CharacterTokenizer.from_text(text.read_text()).vocabulary_size

    def make():
        ids = keras.Input((None,), dtype="int32")
        return keras.Model(ids, keras.layers.Dense(size)(keras.layers.Embedding(size, 4)(ids)))

    first, again = (train(text, make(), folder=tmp_path / "run", **OPTIONS).result for _ in range(2))
    assert first | {"other_seconds": 0} == again | {"other_seconds": 0}


@dataclasses.dataclass(frozen=True)
class OwnConfig(LanguageModelConfig):
    """A config of one's own, without a name."""

    embedding_dim: int = 4

    def blocks(self, dtype=None):
        return [keras_seq.layers.GRU(4, return_sequences=True, dtype=dtype)]


@pytest.mark.usefixtures("eagerly")
def test_a_config_without_a_name_has_that_of_its_model_and_a_short_text_random_windows(tmp_path):
    (tmp_path / "short.txt").write_text("to be or not to be, " * 5)
    options = {**OPTIONS, "tokens": 400, "batch_size": 12, "sequence_length": 8}
    run = train(str(tmp_path / "short.txt"), OwnConfig(), folder=tmp_path / "run", **options)
    assert (run.name, run.config["windows"]) == ("language_model", "random")
    assert "language_model" in run._repr_html_()


@pytest.mark.usefixtures("eagerly")
def test_minutes_become_steps_that_a_resumed_run_takes(text, tmp_path, capsys):
    options = {**OPTIONS, "tokens": None, "minutes": 0.01, "folder": tmp_path / "run"}
    first = train(text, MODELS["lstm"], **options)
    assert "Timing" in capsys.readouterr().out
    assert first.config["experiment"]["minutes"] == 0.01
    assert first.result["train_tokens"] == 24 * first.config["length"]["steps"]
    again = train(text, MODELS["lstm"], **options)
    assert "Timing" not in capsys.readouterr().out
    assert again.config["length"] == first.config["length"]
    assert again.config["train"]["validate_every"] == first.config["train"]["validate_every"]
    for name in ("config.json", "result.json"):
        (tmp_path / "run" / name).unlink()
    with pytest.warns(UserWarning, match="config.json is missing; it is restored"):
        assert train(text, MODELS["lstm"], **options).config["length"] == first.config["length"]
    assert "Timing" not in capsys.readouterr().out
    more = train(text, MODELS["lstm"], **{**options, "validate_every": OPTIONS["validate_every"] + 1})
    assert more.config["train"]["validate_every"] == OPTIONS["validate_every"] + 1


class StopAt(keras.callbacks.Callback):
    """Press Ctrl-C in a step."""

    def __init__(self, step):
        super().__init__()
        self.stop_step = step

    def on_train_batch_end(self, batch, logs=None):
        if int(self.model.optimizer.iterations) >= self.stop_step:
            self.stop_step = math.inf
            os.kill(os.getpid(), signal.SIGINT)


@pytest.mark.usefixtures("eagerly")
def test_the_command_stopped_and_resumed_is_the_run_of_the_function_to_the_bit(
    trained, text, tmp_path, monkeypatch, capsys
):
    monkeypatch.chdir(tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(command, "train", functools.partial(train, callbacks=[StopAt(5)]))
        with pytest.raises(SystemExit) as stop:
            command.main([str(text), *WORDS])
    assert stop.value.code == 130
    said = capsys.readouterr().err
    (folder,) = tmp_path.glob("logs/train/*-text-lstm")
    assert f"Stopped. A checkpoint is in {folder.relative_to(tmp_path)}/checkpoints/step-0000000" in said
    (resume,) = re.findall(r"^To resume: .*(?:keras-seq|-m keras_seq) train (--resume .*)$", said, re.MULTILINE)
    command.main(resume.split())
    assert not differences(end(folder), end(trained().folder))
    said = capsys.readouterr().out
    for name in ("generate", "score", "inspect", "report"):
        assert re.search(rf"(keras-seq|-m keras_seq) {name} {folder.relative_to(tmp_path)}", said)


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ([], "TEXT or --resume RUN: neither was given"),
        (["a.txt", "--resume", "RUN"], "TEXT or --resume RUN: both were given"),
        (["--resume", "RUN", "--out", "OTHER"], "--out OTHER: expected no --out beside --resume"),
        (
            ["--resume", "nowhere"],
            "--resume nowhere: it does not exist; expected the folder of a run of keras-seq train",
        ),
        (["--resume", "RUN", "--tokens", "120"], "length.steps was 10 and is 5"),
        (["--resume", "RUN", "--lstm.units", "7"], "model.units was 6 and is 7"),
        (["--resume", "RUN", "--gru.units", "7"], "--gru.units: it has no effect here; expected gru among the chosen"),
        (["a.txt", "--minutes", "1", "--tokens", "5"], "--tokens: it has no effect here; expected no --minutes"),
        (["a.txt", "--minutes", "0"], "--minutes 0.0: expected a number above 0"),
        (["a.txt", "--minutes", "nan"], "--minutes nan: expected a number above 0"),
        (["shakespear"], "perhaps you meant shakespeare"),
        (["empty.txt"], "The corpus 'empty.txt' is empty"),
        (["short.txt"], "The corpus 'short.txt' is too short"),
        (["binary"], "The corpus 'binary' is not UTF-8"),
        (["short.txt", "--out", "short.txt"], "short.txt' is a file; expected a folder"),
    ],
)
def test_a_mistake_on_the_command_line_is_one_sentence(trained, tmp_path, monkeypatch, fails, words, sentence):
    monkeypatch.chdir(tmp_path)
    for name, content in (("empty.txt", b""), ("short.txt", b"To be"), ("binary", b"\x7fELF\xff\x00" * 99)):
        (tmp_path / name).write_bytes(content)
    before = sorted(tmp_path.iterdir())
    folder = str(trained().folder)
    assert sentence in fails(command.main, *(folder if word == "RUN" else word for word in words))
    assert sorted(tmp_path.iterdir()) == before


def test_the_run_of_an_experiment_is_not_resumed_by_the_command(smoke, fails):
    said = fails(command.main, "--resume", smoke.folder / "lstm-seed0")
    assert "it was not started by keras-seq train; resume it with what started it" in said


def test_it_trains_what_compare_trains_to_the_bit(smoke, tmp_path):
    config = replaced(CompareConfig(), SMOKE)
    names = ("tokens", "batch_size", "sequence_length")
    options = {name: getattr(config, name) for name in names} | dataclasses.asdict(config.train)
    run = train(config.corpus, config.hybrid, folder=tmp_path / "run", **options)
    other = smoke.folder / "hybrid-seed0"  # reads random windows in both
    for name in ("metrics.jsonl", "val_token_losses.npy"):
        assert read(run.folder / name) == read(other / name)
    assert not differences(end(run.folder), end(other))


def plain(result):
    """The entries of a result or of a line of metrics that are no clocks."""
    return {name: value for name, value in result.items() if name not in CLOCKS}


def read(path):
    """The content of a file of a run, without clocks."""
    if path.suffix == ".npy":
        return path.read_bytes()
    lines = map(json.loads, path.read_text(encoding="utf-8").splitlines())
    return [*map(plain, lines)]
