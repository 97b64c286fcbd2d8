"""What goes to trackio and wandb, by a package that notes its calls, and by trackio itself where it is installed."""

import contextlib
import inspect
import json
import subprocess
import sys
import types
from unittest import mock

import pytest

from keras_seq.tracking import Summaries, TokenTensorBoard, Tracker
from keras_seq.tracking.tracker import RUNS, TrackioRun, WandbRun, import_tracker, open_tracker
from keras_seq.training import TrainConfig

SUMMARIES = Summaries(
    {"val_loss": 1.5, "loss_by_position/0": 3.0, "entropy/a": 2.0},
    {"sample": "  To be\n\n<or> not"},
    curves={"loss_by_position/0 to 1": 2.5},
)


class Package(types.ModuleType):
    """Notes the calls of the functions that both packages have, and of wandb's own."""

    def __init__(self, name):
        super().__init__(name)
        self.calls = []
        for function in ("log", "define_metric", "finish"):
            setattr(self, function, self.note(function))
        self.Markdown, self.Html = (lambda text: ("Markdown", text)), (lambda text: ("Html", text))

    def note(self, function):
        return lambda *args, **options: self.calls.append((function, args, options))

    def init(self, **options):
        self.calls.append(("init", (), options))
        return self  # its own run

    def of(self, function):
        return [(args, options) for name, args, options in self.calls if name == function]


@pytest.fixture(params=["trackio", "wandb"])
def package(request, monkeypatch):
    """Stands for a package of this name."""
    package = Package(request.param)
    monkeypatch.setitem(sys.modules, request.param, package)
    for name in ("TRACKIO_PROJECT", "WANDB_PROJECT"):
        monkeypatch.delenv(name, raising=False)
    return package


def tracker_of(package, folder):
    return RUNS[package.__name__](folder, mock.Mock())


def test_every_tracker_has_the_methods_of_the_protocol():
    methods = [name for name in vars(Tracker) if not name.startswith("_")]
    assert {"write_settings", "record", "write"} == {*methods}
    for tracker in (TokenTensorBoard, TrackioRun, WandbRun):
        for name in methods:
            of_both = (inspect.signature(getattr(owner, name)).parameters for owner in (tracker, Tracker))
            assert [*next(of_both)] == [*next(of_both)], (tracker, name)


def test_tensorboard_gets_first_what_the_other_gets(package, tmp_path):
    board = mock.Mock()
    calls = (
        ("write_settings", ({"a": 1}, None)),
        ("record", (2, {"loss": 0.5})),
        ("write", (2, Summaries({"x": 1.0}))),
    )
    with RUNS[package.__name__](tmp_path, board) as tracker:
        for name, args in calls:
            getattr(board, name).side_effect = lambda *_: package.log("board")
            getattr(tracker, name)(*args)
    assert [(name, args) for name, args, _ in board.mock_calls] == [*calls]
    assert [args for name, args, _ in package.calls if name in ("init", "log")][::2] == [("board",)] * 3


def test_the_config_names_the_trackers_there_are():
    for name in ("tensorboard", *RUNS):
        TrainConfig(tracker=name)
    with pytest.raises(ValueError, match="tracker='mlflow'; expected one of 'tensorboard', 'trackio', 'wandb'"):
        TrainConfig(tracker="mlflow")


def test_settings_curves_and_texts_are_sent_at_the_tokens_and_to_tensorboard_too(package, tmp_path, monkeypatch):
    written = []
    for name in ("write_settings", "record", "write"):
        monkeypatch.setattr(TokenTensorBoard, name, lambda *args: written.append(args[1:]))
    folder = tmp_path / "20260101-000000" / "lstm: 1"
    folder.mkdir(parents=True)
    with open_tracker(package.__name__, folder) as tracker:
        tracker.write_settings({"train.log_every": 2}, None)
        tracker.record(10, {"loss": 2, "learning_rate": 0.5})
        tracker.write(20, SUMMARIES)
    assert written == [({"train.log_every": 2}, None), (10, {"loss": 2, "learning_rate": 0.5}), (20, SUMMARIES)]
    ((_, options),) = package.of("init")
    assert (options["project"], options["group"]) == ("keras_seq", "20260101-000000")
    assert (options["config"], options["resume"]) == ({"train.log_every": 2}, "allow")
    values = [args[0] for args, _ in package.of("log")]
    shown = ("Html", "<pre>  To be\n\n&lt;or&gt; not</pre>")
    if package.__name__ == "wandb":
        assert (options["name"], options["dir"]) == ("lstm: 1", str(folder))
        assert [value.pop("tokens") for value in values] == [10, 20]
        assert package.of("define_metric") == [(("tokens",), {}), (("*",), {"step_metric": "tokens"})]
    else:
        assert [options["step"] for _, options in package.of("log")] == [10, 20]
        shown = ("Markdown", "      To be\n    \n    <or> not")
    assert values == [
        {"Loss/training": 2.0, "Training/learning_rate": 0.5},
        {
            "Loss/validation": 1.5,
            "diagnostics/entropy/a": 2.0,
            "Validation/loss_by_position/0 to 1": 2.5,
            "sample": shown,
        },
    ]


def test_a_run_goes_on_under_its_id_and_another_in_an_equal_folder_has_another(package, tmp_path):
    def started(folder):
        with tracker_of(package, folder) as tracker:
            tracker.write_settings({}, None)
        options = package.of("init")[-1][1]
        return options.get("id", options["name"])

    folders = [tmp_path / parent / "lstm: 1" for parent in ("a", "b")]
    for folder in folders:
        folder.mkdir(parents=True)
    one, other = map(started, folders)
    assert one.startswith("lstm--1-")
    assert one != other
    assert (started(folders[0]), started(folders[1])) == (one, other)
    for damage in (b"", b"\xff\n", b"../a b\n"):
        (folders[0] / "tracker.txt").write_bytes(damage)
        assert started(folders[0]) not in (one, other)


def test_a_run_ends_with_its_training_and_wandb_learns_whether_it_failed(package, tmp_path):
    with open_tracker(package.__name__, tmp_path):
        pass
    assert package.calls == []  # it never started
    for error in (KeyboardInterrupt, None):
        with contextlib.suppress(KeyboardInterrupt), tracker_of(package, tmp_path) as tracker:
            tracker.write_settings({}, None)
            if error is not None:
                raise error
    codes = [options for _, options in package.of("finish")]
    assert codes == ([{"exit_code": 1}, {"exit_code": 0}] if package.__name__ == "wandb" else [{}, {}])


def test_an_end_that_fails_is_a_warning_and_hides_no_stop(package, tmp_path):
    def fail(*_, **__):
        raise RuntimeError("cannot upload")

    package.finish = fail

    def trained(stop):
        with tracker_of(package, tmp_path) as tracker:
            tracker.write_settings({}, None)
            if stop is not None:
                raise stop

    for stop, ends in ((KeyboardInterrupt, pytest.raises(KeyboardInterrupt)), (None, contextlib.nullcontext())):
        with ends, pytest.warns(UserWarning, match=r"did not end the run \(cannot upload\)"):
            trained(stop)


def test_the_project_can_be_named(package, tmp_path, monkeypatch):
    monkeypatch.setenv(f"{package.__name__.upper()}_PROJECT", "mine")
    with tracker_of(package, tmp_path) as tracker:
        tracker.write_settings({}, None)
    assert package.of("init")[0][1]["project"] == "mine"


def test_a_package_that_does_not_start_a_run_is_one_sentence(package, tmp_path):
    def init(**_):
        raise RuntimeError("not logged in")

    package.init = init
    message = r"does not start a run \(not logged in\).* --train.tracker tensorboard"
    with tracker_of(package, tmp_path) as tracker, pytest.raises(ConnectionError, match=message):
        tracker.write_settings({}, None)
    assert package.of("finish") == []


@pytest.mark.parametrize("name", RUNS)
def test_a_missing_package_is_one_sentence_also_where_a_folder_has_its_name(name, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(ValueError, match=f"tracker='{name}'; expected an installed package .*: pip install {name}"):
        import_tracker(name)
    monkeypatch.delitem(sys.modules, name)
    (tmp_path / name).mkdir()
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    with pytest.raises(ValueError, match=f"{name} is a folder here, not a package.*: pip install {name}"):
        import_tracker(name)
    monkeypatch.delitem(sys.modules, name)


def test_tensorboard_alone_needs_no_other_package(tmp_path, monkeypatch):
    for name in RUNS:
        monkeypatch.setitem(sys.modules, name, None)
    import_tracker("tensorboard")
    with open_tracker("tensorboard", tmp_path) as tracker:
        assert isinstance(tracker, TokenTensorBoard)
    assert list(tmp_path.iterdir()) == []


TRACKIO = """
import sys
from unittest import mock
from keras_seq.tracking.tracker import TrackioRun
from keras_seq.tracking import Summaries
for tokens in (10, 20):
    with TrackioRun(sys.argv[1], mock.Mock()) as run:
        run.write_settings({"train.log_every": tokens}, None)
        run.record(tokens, {"loss": 1 / tokens})
        run.write(tokens, Summaries({"val_loss": float("nan")}, {"sample": "a"}))
import json, trackio
from trackio.sqlite_storage import SQLiteStorage
(run,) = trackio.Api().runs("keras_seq")
print(json.dumps([run.name, run.config["train.log_every"], SQLiteStorage.get_logs("keras_seq", run.name)]))
"""


def test_trackio_itself_goes_on_in_one_run(tmp_path, monkeypatch):
    pytest.importorskip("trackio")
    monkeypatch.setenv("TRACKIO_DIR", str(tmp_path / "trackio"))  # which it reads when it is imported
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    for name in ("TRACKIO_PROJECT", "TRACKIO_SPACE_ID", "TRACKIO_SERVER_URL"):
        monkeypatch.delenv(name, raising=False)
    (tmp_path / "lstm").mkdir()
    command = [sys.executable, "-c", TRACKIO, str(tmp_path / "lstm")]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    name, log_every, points = json.loads([line for line in done.stdout.splitlines() if line.startswith("[")][-1])
    assert f"{name}\n" == (tmp_path / "lstm/tracker.txt").read_text(encoding="utf-8")
    assert log_every in (10, 20)
    assert [point["step"] for point in points] == [10, 10, 20, 20]
    assert [point["Loss/training"] for point in points[::2]] == [0.1, 0.05]
    assert points[1]["sample"]["_value"] == "    a"
