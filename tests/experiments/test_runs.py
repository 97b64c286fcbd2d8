import contextlib
import dataclasses
import os
import types
from typing import Annotated

import pytest
import tyro

from experiments.frame import folders
from experiments.frame.runs import check_same_corpus, start_or_resume
from keras_seq import training
from keras_seq.files import write_json
from keras_seq.training import checksummed_json, load_result
from keras_seq.training.run_lock import lock_run


@dataclasses.dataclass(frozen=True)
class Part:
    """A part."""

    units: int = 4


@dataclasses.dataclass(frozen=True)
class Config:
    """Options."""

    tokens: int = 100
    num_seeds: int = 1
    models: tuple[str, ...] = ("lstm",)
    corpus: str = "pydoc"
    log_dir: str = "logs"
    resume: str | None = None
    smoke: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    part: Part = dataclasses.field(default_factory=Part)
    train: training.TrainConfig = dataclasses.field(default_factory=training.TrainConfig)


SAVED = Config(tokens=50, models=("gru", "rnn"), part=Part(units=7))


@pytest.fixture
def folder(tmp_path):
    """Two runs, one of them finished, and a plan."""
    folder = tmp_path / "test/20260101-000000"
    for name in ("gru-seed0", "rnn-seed0"):
        (folder / name).mkdir(parents=True)
        checksummed_json.write(folder / name / "config.json", {"experiment": dataclasses.asdict(SAVED), "seed": 0})
    training.write_result(folder / "gru-seed0", {"loss": 1.0})
    write_json(folder / "plan.json", {})
    return folder


def resume(folder, *options):
    with start_or_resume(Config, "test", "A test.", ["--resume", str(folder), *options], smoke={}) as begun:
        return begun


def _begin(*options):
    return start_or_resume(Config, "test", "A test.", [*options], smoke={})


def new(*options):
    with _begin(*options) as begun:
        return begun


def contents(folder):
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file() and path.name != ".lock"}


@pytest.mark.parametrize("place", ["", "gru-seed0", "rnn-seed0"])
def test_the_settings_are_those_of_the_folder_also_when_a_run_in_it_is_named(folder, place):
    before = contents(folder)
    assert resume(folder / place) == (SAVED, folder)
    assert contents(folder) == before


def test_the_word_may_stand_anywhere_and_with_an_equals_sign(folder):
    arguments = ["--train.log-every", "7", f"--resume={folder}"]
    with start_or_resume(Config, "test", "A test.", arguments, smoke={}) as (given, _):
        pass
    assert given == dataclasses.replace(SAVED, train=training.TrainConfig(log_every=7))


def test_intervals_may_change_and_what_is_finished_stays(folder):
    options = ("--train.log-every", "7", "--train.patience", "3", "--tokens", "50", "--part.units", "7")
    given, _ = resume(folder, *options)
    assert given == dataclasses.replace(SAVED, train=training.TrainConfig(log_every=7, patience=3))
    assert load_result(folder / "gru-seed0") == {"loss": 1.0}
    assert resume(folder)[0] == given  # and it is what the runs go on with from then on
    assert checksummed_json.read(folder / "rnn-seed0/config.json")["seed"] == 0


def test_more_tokens_make_what_is_finished_go_on(folder, capsys):
    given, _ = resume(folder, "--tokens", "80")
    assert given.tokens == 80
    assert load_result(folder / "gru-seed0") is None
    assert resume(folder)[0].tokens == 80
    assert "tokens was 50 and is 80" in capsys.readouterr().out


def test_more_seeds_leave_the_runs_that_are_there_as_they_are(folder):
    assert resume(folder, "--num-seeds", "3")[0] == dataclasses.replace(SAVED, num_seeds=3)
    assert load_result(folder / "gru-seed0") == {"loss": 1.0}
    assert (folder / "plan.json").exists()


def test_while_another_process_trains_nothing_changes(folder):
    before = contents(folder)
    with lock_run(folder / "rnn-seed0"), pytest.raises(BlockingIOError, match="another process trains there"):
        resume(folder, "--tokens", "80")
    assert {path: path.read_bytes() for path in before} == before


def test_a_config_that_is_corrupt_is_named_and_nothing_changes(folder):
    (folder / "rnn-seed0/config.json").write_text("{")
    before = contents(folder)
    with pytest.raises(ValueError, match=r"rnn-seed0/config\.json is corrupt"):
        resume(folder, "--tokens", "80")
    assert contents(folder) == before


def test_a_folder_of_an_older_version_is_refused_and_nothing_changes(folder):
    for run in ("gru-seed0", "rnn-seed0"):
        (folder / run / "config.json").write_text('{"experiment": {"tokens": 50}, "seal": "ab"}')
    before = contents(folder)
    with pytest.raises(ValueError, match=r"gru-seed0/config\.json .*keras_seq 0\.1"):
        resume(folder)
    assert contents(folder) == before


def test_runs_that_name_no_text_do_not_go_on_with_one(folder):
    with pytest.raises(ValueError, match=r"config\.json does not name the corpus"):
        check_same_corpus(folder, types.SimpleNamespace(name="pydoc", sha256="ab"))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--corpus", "shakespeare"), "corpus was 'pydoc' and is 'shakespeare'"),
        (("--part.units", "8"), "part.units was 7 and is 8"),
        (("--models", "gru"), r"models was \['gru', 'rnn'\] and is \['gru'\]"),
        (("--train.learning-rate", "0.5"), "train.learning_rate was None and is 0.5"),
        (("--tokens", "40"), "tokens was 50 and is 40"),
        (("--smoke",), "smoke was False and is True"),
        (
            ("--tokens", "80", "--corpus", "x", "--part.units", "8"),
            r"corpus .*; part.units .*Options that can change: .*tokens",
        ),
    ],
)
def test_what_has_to_stay_is_refused_by_name_and_nothing_changes(folder, options, message):
    before = contents(folder)
    with pytest.raises(ValueError, match=message):
        resume(folder, *options)
    assert contents(folder) == before


def test_the_folder_of_another_experiment_is_refused(folder):
    @dataclasses.dataclass(frozen=True)
    class Other:
        log_dir: str = "logs"
        resume: str | None = None
        smoke: bool = False

    with (
        pytest.raises(ValueError, match="such as corpus: it is that of another experiment or version"),
        start_or_resume(Other, "other", "Another.", ["--resume", str(folder)], smoke={}),
    ):
        pass


def test_where_no_run_is_none_goes_on(tmp_path):
    with pytest.raises(ValueError, match="has no run with a config"):
        resume(tmp_path / "nowhere")
    with pytest.raises(ValueError, match="--resume"):
        new("--resume")


@pytest.mark.parametrize(
    ("log_dir", "there"), [("file", "file"), ("file/deep/er", "file"), ("link", "link"), ("logs", "logs/test")]
)
def test_where_a_file_is_no_runs_can_go(tmp_path, log_dir, there):
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs/test").touch()
    (tmp_path / "file").touch()
    (tmp_path / "link").symlink_to("nowhere")
    with pytest.raises(ValueError, match=f"--log-dir .*{log_dir}: .*/{there} is not a folder"):
        new("--log-dir", str(tmp_path / log_dir))


def test_two_that_begin_in_the_same_second_have_a_folder_each(tmp_path, monkeypatch):
    monkeypatch.setattr(folders.time, "strftime", lambda *_: "20260101-000000")
    with contextlib.ExitStack() as stack:
        begun = [stack.enter_context(_begin("--log-dir", str(tmp_path))) for _ in range(3)]
        names = [folder.name for _, folder in begun]
        assert names == [f"20260101-000000-pydoc{suffix}" for suffix in ("", "-2", "-3")]
        (begun[1][1] / "plan.json").touch()
    assert [path.name for path in (tmp_path / "test").iterdir()] == names[1:2]  # in the others nothing was written
    assert [path.name for path in begun[1][1].iterdir()] == ["plan.json"]


def test_where_nothing_is_written_no_folder_stays(tmp_path):
    def fail():
        with _begin("--log-dir", str(tmp_path / "logs/deep")):
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert not [*tmp_path.iterdir()]


def test_a_folder_in_which_another_process_works_is_refused_and_nothing_changes(folder):
    before = contents(folder)
    with lock_run(folder), pytest.raises(BlockingIOError, match=f"process {os.getpid()} "):
        resume(folder)
    with _begin("--resume", str(folder)), pytest.raises(BlockingIOError):
        resume(folder / "gru-seed0")
    assert {path: path.read_bytes() for path in before} == before


def test_what_kills_have_left_is_removed_also_beside_the_runs_and_from_runs_that_are_finished(folder):
    before = {*folder.rglob("*")}
    names = [".compare.4194305.partial.json", "gru-seed0/checkpoints/.events.out.events.1.4194305.partial.v2"]
    names += ["gru-seed0/.model.4194305.partial.keras", "gru-seed0/.pid"]
    (folder / "gru-seed0/checkpoints").mkdir()
    for name in names:
        (folder / name).touch()
    resume(folder)
    assert {*folder.rglob("*")} - before == {folder / "gru-seed0/checkpoints", folder / "gru-seed0/.lock"}


def test_the_settings_come_from_whichever_run_has_them_whole(folder):
    (folder / "gru-seed0/config.json").write_text("{")
    assert resume(folder)[0] == SAVED
    (folder / "rnn-seed0/config.json").write_text("{")
    with pytest.raises(ValueError, match=r"gru-seed0/config\.json is corrupt.*remove \S*gru-seed0 to train this run"):
        resume(folder)
