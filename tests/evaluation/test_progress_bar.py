import types

import pytest

from keras_seq.evaluation import progress_bar
from keras_seq.evaluation.progress_bar import ProgressBar, counted, listening, seconds_left, validations_left


def simulated(step, last, every, step_seconds, validation_seconds, final_seconds):
    """The loop, with a clock."""
    now = 0.0
    while step < last:
        step, now = step + 1, now + step_seconds
        if step % every == 0 or step == last:
            now += validation_seconds
    return now + final_seconds


@pytest.mark.parametrize("every", [1, 4, 5, 100])
@pytest.mark.parametrize("last", [1, 12, 13])
def test_the_time_left_is_that_of_steps_validations_and_final_scores(every, last):
    for step in range(last + 1):
        arguments = (step, last, every, 0.5, 20.0, 7.0)
        assert seconds_left(*arguments) == simulated(*arguments)
    assert validations_left(last, last, every) == 0


def test_whoever_listens_is_told_how_far_a_scoring_is():
    told = []
    with listening(lambda *scored: told.append(scored)):
        assert list(counted(range(0, 10, 4), total=11)) == [0, 4, 8]
        list(counted(range(0, 3, 4), total=3))  # a single part says nothing
    list(counted(range(0, 10, 4), total=11))
    assert told == [(0.4, 11), (0.8, 11), (1.0, 11)]


@pytest.fixture
def bar(monkeypatch):
    """A `Progress` whose bar is shown to nobody, over steps of a second; `shown` are the words on it."""
    record = types.SimpleNamespace(seconds=0.0)
    bar = ProgressBar("a run", 10, 0, 100, record, every=20, final_times=3.0, characters_per_token=2.0)
    bar.set_model(types.SimpleNamespace(optimizer=types.SimpleNamespace(iterations=0)))
    now, bar.shown = [0.0], []
    monkeypatch.setattr(
        progress_bar, "time", types.SimpleNamespace(monotonic=lambda: now[0], perf_counter=lambda: now[0])
    )
    monkeypatch.setattr(bar.bar, "set_postfix_str", bar.shown.append)

    def step(number, seconds):
        record.seconds += seconds
        bar.model.optimizer.iterations = number
        bar.on_train_batch_end(0, {"loss": 1.0})

    def sleep(seconds):
        now[0] += seconds

    bar.step, bar.sleep = step, sleep
    return bar


def test_the_speed_is_that_of_training_and_the_time_left_counts_validations(bar):
    bar.step(10, 60.0)  # compiles
    assert (bar.bar.speed, bar.bar.left) == ("?", "?")
    bar.step(20, 10.0)
    assert (bar.bar.speed, bar.bar.left) == ("10.0tok/s", ">01:20")
    assert bar.validation(lambda: bar.sleep(30.0)) is None
    bar.step(30, 10.0)
    assert bar.bar.speed == "10.0tok/s"
    assert bar.bar.left == "04:40"  # 70 steps, 4 validations, and three times one of them
    bar.step(100, 70.0)
    assert bar.bar.left == "01:30"


def test_a_validation_says_how_far_it_is(bar):
    def measure():
        for _ in counted(range(0, 100, 25), total=50):
            bar.sleep(2 * progress_bar.EVERY)

    bar.validation(measure)
    parts = [f"100 characters: {share}%" for share in (25, 50, 75, 100)]
    assert bar.shown == ["validating", *(f"validating {part}" for part in parts)]
    del bar.shown[:]
    bar.final_scores(measure)
    assert bar.shown[1:] == [f"scoring {part}" for part in parts]


def test_the_bar_shows_what_it_is_told():
    told = {"n": 50, "total": 100, "elapsed": 3, "prefix": "a run", "left": "00:09", "speed": "7tok/s"}
    shown = progress_bar.Bar.format_meter(**told, ncols=80, bar_format=progress_bar.Bar.FORMAT)
    assert shown.startswith("a run:  50%|")
    assert shown.endswith("| 50/100 [00:03<00:09, 7tok/s]")
