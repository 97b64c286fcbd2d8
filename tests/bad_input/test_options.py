"""Every option of every experiment, found by itself: a new one is covered as soon as it is there."""

import dataclasses
import math

import pytest

from tests.bad_input.options import EXPERIMENTS, REQUIRED, bad, groups, options, settings, written

CASES = [(name, option, kind) for name, (_, kinds) in EXPERIMENTS.items() for option, kind in options(kinds)]
NESTED = {
    f"{type(group).__module__}.{type(group).__name__}": (name, path, type(group))
    for name in EXPERIMENTS
    for path, group in groups(settings(name))
}


def _names(option, said):
    return option.replace("_", "-") in said or option in said


@pytest.mark.parametrize(("name", "option", "kind"), CASES, ids=[f"{name}-{option}" for name, option, _ in CASES])
def test_no_settings_are_made_with_a_bad_value(refused, name, option, kind):
    given = settings(name)
    for value in bad(kind, option):
        said = refused(lambda value=value: dataclasses.replace(given, **{option: value}), "expected")
        assert _names(option, said)


@pytest.mark.parametrize(("name", "path", "kind"), NESTED.values(), ids=NESTED)
def test_nor_with_a_bad_value_in_a_group_of_options(refused, name, path, kind):
    given = settings(name)
    group = getattr(given, path)
    for option, of_type in options(kind):
        for value in bad(of_type, option):
            refused(
                lambda option=option, value=value: dataclasses.replace(
                    given, **{path: dataclasses.replace(group, **{option: value})}
                ),
                option.replace("_", "[-_]"),
            )


def _on_a_command_line(kind, option, place):
    """One of the bad values that can be typed, another one for each option in turn; names have tests of their own."""
    if any(word in str(kind) for word in ("bool", "str", "Path")):
        return None
    values = [value for value in bad(kind, option) if value != () and not isinstance(value, bool)]
    return values[place % len(values)]


@pytest.mark.parametrize(
    ("name", "option", "value"),
    [
        (name, option, value)
        for place, (name, option, kind) in enumerate(CASES)
        if (value := _on_a_command_line(kind, option, place)) is not None
    ],
)
def test_a_command_line_with_a_bad_value_ends_with_one_sentence(ends, name, option, value):
    main = EXPERIMENTS[name][0]
    required = [f"--{k}={v}" if k == "text" else v for k, v in REQUIRED.get(name, {}).items()]
    said = ends(main, *required, *written(option, value))
    assert said.startswith(f"experiments.{name}: ")
    assert _names(option, said)


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_so_does_one_with_an_unknown_option_or_a_word_too_many(ends, name):
    main = EXPERIMENTS[name][0]
    assert "--colour" in ends(main, *REQUIRED.get(name, {}).values(), "--colour", "blue")
    assert "word" in ends(main, *REQUIRED.get(name, {}).values(), "word", "another")


def test_nothing_is_left_out():
    assert {"compare", "words", "score", "pipeline_speed", "shakespeare"} <= EXPERIMENTS.keys()
    assert len(CASES) > 150
    assert any(isinstance(value, float) and math.isnan(value) for value in bad(float, "restart"))
    assert 2**63 in bad(int, "seeds")
