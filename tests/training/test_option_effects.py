"""Options that would do nothing are errors, or a sentence where a short training leaves them without effect."""

import re

import numpy as np
import pytest

from keras_seq.data import RandomWindows
from keras_seq.models import LSTMConfig
from keras_seq.training import SGD, InverseSqrtDecay, OptionError, TrainConfig, compile_model, fit_resumable
from keras_seq.training.option_effects import check_options, words_of_no_effect

PLAIN = {"warmup_steps": 0}


def compiled(train, steps, **options):
    model = LSTMConfig(4, 5).build_model(8)
    compile_model(model, train, steps, **options)
    return model, train, steps


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"ema_momentum": 0.9}, "ema_momentum=0.9.* use_ema=True"),
        ({"optimizer": "adamw", "adam_lr_ratio": 0.3}, "adam_lr_ratio"),
        ({"optimizer": "sgd", "weight_decay": 0.1}, "weight_decay"),
        ({"optimizer": "sgd", "beta_2": 0.9}, "beta_2"),
        ({"learning_rate": 1e39}, "learning_rate=1e"),
    ],
)
def test_an_option_that_needs_another_is_refused(options, words):
    with pytest.raises(ValueError, match=words):
        TrainConfig(**options)


@pytest.mark.parametrize(
    ("options", "steps", "words"),
    [
        ({"gradient_accumulation_steps": 5}, 4, "gradient_accumulation_steps=5 in a training of 4 steps"),
        ({"precision": "bfloat16"}, 4, "precision='bfloat16', but lstm computes in float32"),
    ],
)
def test_a_training_that_would_not_be_the_one_that_is_meant_is_refused(options, steps, words, tmp_path):
    model, train, steps = compiled(TrainConfig(**PLAIN, **options), steps)
    dataset_fn = RandomWindows(np.arange(8), 2, 3).dataset
    with pytest.raises(OptionError, match=words):
        fit_resumable(tmp_path / "run", model, dataset_fn, 6, steps, train, None, {}, "x")
    assert not (tmp_path / "run").exists()


def test_neither_is_a_model_that_was_compiled_with_another_config():
    model, _, steps = compiled(TrainConfig(learning_rate=0.1), 10)
    with pytest.raises(OptionError, match=r"compiled with learning_rate=0\.1; expected the config of its training"):
        check_options(model, TrainConfig(learning_rate=0.2), steps)


@pytest.mark.parametrize(
    ("options", "steps", "words"),
    [
        ({"warmup_steps": 40}, 10, "The warm-up of 40 steps is longer than the training of 10: .* 25% of its peak"),
        ({"gradient_accumulation_steps": 3}, 10, "does not divide the 10 steps: the gradients of the last 1 "),
        ({"patience": 3, "validate_every": 5}, 20, "patience=3 cannot end a training of 4 validations"),
    ],
)
def test_an_option_without_effect_is_a_sentence(options, steps, words):
    (sentence,) = words_of_no_effect(*compiled(TrainConfig(**{**PLAIN, **options}), steps))
    assert re.search(words, sentence), sentence


def test_options_with_an_effect_are_not():
    options = {"warmup_steps": 10, "gradient_accumulation_steps": 5, "patience": 2, "validate_every": 5}
    assert words_of_no_effect(*compiled(TrainConfig(**options), 20)) == []


def test_a_schedule_and_a_compiled_model_have_theirs():
    train = TrainConfig(**PLAIN)
    (sentence,) = words_of_no_effect(*compiled(train, 4, schedule=InverseSqrtDecay(4, 8)))
    assert "warm-up of 8 steps" in sentence
    model = LSTMConfig(4, 5).build_model(8)
    model.compile(SGD(0.1), "mse")
    (sentence,) = words_of_no_effect(model, TrainConfig(learning_rate=0.5, use_ema=True), 4)
    assert "learning_rate, use_ema of its TrainConfig have no effect" in sentence
