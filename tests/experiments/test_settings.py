import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from experiments.frame.settings import check_multiple, check_together, check_unique, num_steps, replaced
from keras_seq.training import TrainConfig


@dataclasses.dataclass(frozen=True)
class Config:
    """Options."""

    tokens: int = 100
    models: tuple[str, ...] = ("lstm", "gru", "rnn")
    train: TrainConfig = dataclasses.field(default_factory=lambda: TrainConfig(validate_every=7))

    def __post_init__(self):
        check_unique("--models", self.models)


def test_a_value_replaces_a_dict_changes_inside_and_a_function_maps():
    old = Config()
    new = replaced(old, {"tokens": 5, "models": lambda names: names[-2:], "train": {"log_every": 3}})
    assert new == Config(5, ("gru", "rnn"), TrainConfig(validate_every=7, log_every=3))
    assert old == replaced(old, {}) == Config()
    with pytest.raises(ValueError, match=r"^--models gru gru: expected one or more, each once\.$"):
        replaced(old, {"models": ("gru", "gru")})  # what is made is checked again
    with pytest.raises(AttributeError, match="no_option"):
        replaced(old, {"train": {"no_option": 1}})


@pytest.mark.parametrize(("run", "text", "fails"), [(None, None, 0), ("a", "b", 0), ("a", None, 1), (None, "", 1)])
def test_options_that_go_together(run, text, fails):
    if not fails:
        check_together("--run", run, "--text", text)
        return
    with pytest.raises(ValueError, match=r"^--run and --text go together: expected both or neither"):
        check_together("--run", run, "--text", text)


@pytest.mark.parametrize(("value", "fails"), [(8, 0), (16, 0), (0, 1), (12, 1), (-8, 1)])
def test_a_size_is_a_multiple(value, fails):
    if not fails:
        check_multiple("--width", value, 8)
        return
    with pytest.raises(ValueError, match=f"^--width {value}: expected a multiple of 8"):
        check_multiple("--width", value, 8)


@given(st.integers(1, 10**6), st.integers(1, 10**4))
def test_steps_contain_the_tokens_and_no_step_is_superfluous(tokens, per_step):
    steps = num_steps(tokens, per_step)
    assert (steps - 1) * per_step < tokens <= steps * per_step
