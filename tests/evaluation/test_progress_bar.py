import types

import pytest

from keras_seq.evaluation import progress_bar
from keras_seq.evaluation.progress_bar import (
    ProgressBar,
    progress_listener,
    seconds_remaining,
    track_progress,
    validations_remaining,
)


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
def test_the_time_left_is_that_of_steps_validations_and_final_validation(every, last):
    for step in range(last + 1):
        arguments = (step, last, every, 0.5, 20.0, 7.0)
        assert seconds_remaining(*arguments) == simulated(*arguments)
    assert validations_remaining(last, last, every) == 0


def test_a_listener_gets_the_progress_of_a_scoring():
    reported = []
    with progress_listener(lambda *progress: reported.append(progress)):
        assert list(track_progress(range(0, 10, 4), total=11)) == [0, 4, 8]
        list(track_progress(range(0, 3, 4), total=3))  # a single part says nothing
    list(track_progress(range(0, 10, 4), total=11))
    assert reported == [(0.4, 11), (0.8, 11), (1.0, 11)]


@pytest.fixture
def bar(monkeypatch):
    """A `ProgressBar` that is not shown, over steps of a second; `shown` are the words on it."""
    logger = types.SimpleNamespace(seconds=0.0)
    bar = ProgressBar("a run", 10, 0, 100, logger, every=20, final_duration_ratio=3.0, characters_per_token=2.0)
    bar.set_model(types.SimpleNamespace(optimizer=types.SimpleNamespace(step=0)))
    now, bar.shown = [0.0], []
    monkeypatch.setattr(
        progress_bar, "time", types.SimpleNamespace(monotonic=lambda: now[0], perf_counter=lambda: now[0])
    )
    monkeypatch.setattr(bar.bar, "set_postfix_str", bar.shown.append)

    def step(number, seconds):
        logger.seconds += seconds
        bar.model.optimizer.step = number
        bar.on_train_batch_end(0, {"loss": 1.0})

    def sleep(seconds):
        now[0] += seconds

    bar.step, bar.sleep = step, sleep
    return bar


def test_the_speed_is_that_of_training_and_the_time_left_counts_validations(bar):
    bar.step(10, 60.0)  # compiles
    assert (bar.bar.speed, bar.bar.time_remaining) == ("?", "?")
    bar.step(20, 10.0)
    assert (bar.bar.speed, bar.bar.time_remaining) == ("10.0tok/s", ">01:20")
    assert bar.validation(lambda: bar.sleep(30.0)) is None
    bar.step(30, 10.0)
    assert bar.bar.speed == "10.0tok/s"
    assert bar.bar.time_remaining == "04:40"  # 70 steps, 4 validations, and three times one of them
    bar.step(100, 70.0)
    assert bar.bar.time_remaining == "01:30"


def test_a_validation_says_how_far_it_is(bar):
    def validate():
        for _ in track_progress(range(0, 100, 25), total=50):
            bar.sleep(2 * progress_bar.MIN_REFRESH_SECONDS)

    bar.validation(validate)
    parts = [f"100 characters: {share}%" for share in (25, 50, 75, 100)]
    assert bar.shown == ["validating", *(f"validating {part}" for part in parts)]
    del bar.shown[:]
    bar.final_validation(validate)
    assert bar.shown[1:] == [f"scoring {part}" for part in parts]


def test_the_bar_shows_what_it_is_given():
    values = {"n": 50, "total": 100, "elapsed": 3, "prefix": "a run", "time_remaining": "00:09", "speed": "7tok/s"}
    shown = progress_bar.TokenBar.format_meter(**values, ncols=80, bar_format=progress_bar.TokenBar.FORMAT)
    assert shown.startswith("a run:  50%|")
    assert shown.endswith("| 50/100 [00:03<00:09, 7tok/s]")
