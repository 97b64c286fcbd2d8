import pytest

from experiments.benchmark.durations import seconds_by_part, seconds_to_loss

CURVE = [(10.0, 3.0), (20.0, 2.0), (30.0, 2.5), (40.0, 1.0)]


@pytest.mark.parametrize(
    ("loss", "seconds"),
    [(3.5, 10.0), (3.0, 10.0), (2.5, 15.0), (2.0, 20.0), (1.75, 35.0), (1.0, 40.0), (0.9, None)],
)
def test_a_loss_is_reached_between_the_validations_before_and_after(loss, seconds):
    assert seconds_to_loss(CURVE, loss) == seconds


def test_a_loss_of_no_validation_is_not_reached():
    assert seconds_to_loss([], 1.0) is None
    assert seconds_to_loss([(1.0, float("nan"))], 1.0) is None


def test_the_parts_are_the_whole_and_the_compilation_is_of_the_start_up():
    pace, compilation, imports = 0.1, 3.0, 2.0
    lines = [{"step": n, "seconds": compilation + pace * n} for n in (5, 10, 15, 18)]
    first_time = imports + lines[0]["seconds"]
    parts = seconds_by_part(lines, first_time, 12.0, {"validation": 1.5})
    assert parts == pytest.approx({"startup": 5.0, "steps": 1.8, "validation": 1.5, "rest": 3.7})
