"""Invalid values of every option of every program; new options are covered automatically."""

import dataclasses
import math

import pytest

from tests.bad_input.options import PROGRAMS, bad, default_config, groups, options, required_arguments, to_arguments
from tests.conftest import often

CASES = [(name, option, kind) for name, (_, kinds) in PROGRAMS.items() for option, kind in options(kinds)]
NESTED = {
    f"{type(group).__module__}.{type(group).__name__}": (name, path, type(group))
    for name in PROGRAMS
    for path, group in groups(default_config(name))
}


def _names(option, message):
    return option.replace("_", "-") in message or option in message


@pytest.mark.parametrize(("name", "option", "kind"), CASES, ids=[f"{name}-{option}" for name, option, _ in CASES])
def test_no_config_is_made_with_a_bad_value(refused, name, option, kind):
    config = default_config(name)
    for value in bad(kind, option):
        message = refused(lambda value=value: dataclasses.replace(config, **{option: value}), "expected")
        assert _names(option, message)


@pytest.mark.parametrize(("name", "path", "kind"), NESTED.values(), ids=NESTED)
def test_nor_with_a_bad_value_in_a_group_of_options(refused, name, path, kind):
    config = default_config(name)
    group = getattr(config, path)
    for option, of_type in options(kind):
        for value in bad(of_type, option):
            refused(
                lambda option=option, value=value: dataclasses.replace(
                    config, **{path: dataclasses.replace(group, **{option: value})}
                ),
                option.replace("_", "[-_]"),
            )


def _on_a_command_line(kind, option, index):
    """Return one of the invalid values that can be typed, chosen by `index`; names have tests of their own."""
    if any(word in str(kind) for word in ("bool", "str", "Path")):
        return None
    values = [value for value in bad(kind, option) if value != ()]
    return values[index % len(values)]


TYPED = [
    (name, option, value)
    for index, (name, option, kind) in enumerate(CASES)
    if (value := _on_a_command_line(kind, option, index)) is not None
]
ONE_OF_EACH_PROGRAM = [*{name: (name, *rest) for name, *rest in TYPED}.values()]


@often(("name", "option", "value"), TYPED, ONE_OF_EACH_PROGRAM)
def test_a_command_line_with_a_bad_value_ends_with_one_sentence(ends, name, option, value):
    main = PROGRAMS[name][0]
    message = ends(main, *required_arguments(name), *to_arguments(option, value))
    assert _names(option, message)


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_command_line_with_an_unknown_option_or_an_extra_word_ends_with_one_sentence(ends, name):
    main = PROGRAMS[name][0]
    assert "--colour" in ends(main, *required_arguments(name), "--colour", "blue")
    said = ends(main, *required_arguments(name), "word", "another")
    assert "word" in said or name in ("train", "report")  # all words are texts, or runs


def test_nothing_is_left_out():
    assert {"compare", "word_lm", "score", "train", "benchmark", "shakespeare"} <= PROGRAMS.keys()
    assert len(CASES) > 150
    assert any(isinstance(value, float) and math.isnan(value) for value in bad(float, "reset_prob"))
    assert 2**63 in bad(int, "num_seeds")
