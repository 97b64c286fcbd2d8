"""What holds for every experiment that trains."""

import dataclasses
import json
import re
import sys

import matplotlib.image
import pytest

from keras_seq.commands.options import replaced
from keras_seq.reports.tables import WIDTH
from keras_seq.runs.folders import dataclass_from_dict
from tests.experiments.discovery import experiments, main_of

# compare, the longest, comes last: meanwhile another process runs it for the tests of the tools
every_experiment = pytest.mark.parametrize("name", sorted(experiments(), reverse=True))


@every_experiment
def test_a_mistake_is_named_in_one_sentence_and_leaves_nothing(name, refuses):
    refuses(name, "--resume nowhere", "nowhere")
    refuses(name, "--seed -1" if hasattr(main_of(name).settings_class(), "seed") else "--num-seeds 0", "seed")


@every_experiment
def test_a_tracker_that_is_not_installed_is_refused_before_any_work(name, refuses, monkeypatch):
    monkeypatch.setitem(sys.modules, "trackio", None)
    if hasattr(main_of(name).settings_class(), "train"):
        refuses(name, "--train.tracker trackio", "tracker='trackio'", "pip install trackio")


@every_experiment
def test_settings_survive_the_way_to_disk(name):
    settings = main_of(name).settings_class()
    for each in (settings, replaced(settings, main_of(name).smoke)):
        loaded = json.loads(json.dumps(dataclasses.asdict(each)))
        assert dataclass_from_dict(type(settings), loaded) == each


@every_experiment
def test_a_smoke_run_leaves_a_report_and_says_what_was_found(name, smoke):
    assert smoke.stderr == ""
    title, verdict, table, *_ = smoke.report.split("\n\n")
    assert title.startswith("# ")
    assert verdict.endswith(".")
    assert table.startswith("|")
    start = smoke.stdout.rindex(verdict[:30])
    assert smoke.stdout[start:].split()[: len(verdict.split())] == verdict.split()
    for line in smoke.stdout[start:].splitlines():
        assert len(line) <= WIDTH or line.startswith("    "), line
    for image in re.findall(r"!\[.+\]\((.+)\)", smoke.report):
        height, width, _ = matplotlib.image.imread(smoke.folder / image).shape
        assert min(height, width) > 300
        assert str(smoke.folder / image) in smoke.stdout
    assert "--logdir" in smoke.stdout


@every_experiment
def test_to_resume_what_is_finished_trains_nothing(name, smoke, capsys):
    times = {path: path.stat().st_mtime_ns for path in smoke.folder.glob("*/*") if path.name != ".lock"}
    main_of(name)(["--resume", str(smoke.folder)])
    assert {path: path.stat().st_mtime_ns for path in times} == times
    assert smoke.report.split("\n\n")[1].split()[0] in capsys.readouterr().out
