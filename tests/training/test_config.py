"""Options that would do nothing are errors, or a sentence where a short training leaves them without effect."""

import re
import typing

import keras
import numpy as np
import pytest

from keras_seq import layers
from keras_seq.data import RandomWindows
from keras_seq.models import MODELS, LSTMConfig
from keras_seq.models.config import sized, tiny_config
from keras_seq.training import OPTIMIZERS, SGD, InverseSqrtDecay, OptionError, TrainConfig, compile_model, fit_resumable
from keras_seq.training.config import (
    ADAM_LR_RATIOS,
    DTYPE_POLICIES,
    LEARNING_RATES,
    MUONS,
    NS_STEPS,
    check_options,
    family,
    words_of_no_effect,
)
from tests.conftest import often

STEPS = 2_000
FAMILIES = {
    "recurrent": keras.Sequential(
        [layers.PreNormResidual([layers.GRU(2, return_sequences=True)]), keras.layers.Dense(2)]
    ),
    "residual": keras.Sequential(
        [layers.PreNormResidual([layers.MinGRU(2, return_sequences=True)]), keras.layers.Dense(2)]
    ),
}


@pytest.mark.parametrize(
    ("field", "value"),
    [
        *((name, value) for name in ("log_every", "validate_every", "checkpoint_every") for value in (0, -5)),
        *(
            (name, value)
            for name in ("max_checkpoints_to_keep", "patience", "validation_characters")
            for value in (0, -1)
        ),
        ("on_nan", "carry on"),
        ("warmup_steps", -1),
        ("sample_length", -1),
        *(
            (name, value)
            for name in ("learning_rate", "adam_lr_ratio", "global_clipnorm", "checkpoint_every_seconds")
            for value in (0.0, -1.0, float("nan"), float("inf"))
        ),
        *(("final_lr_fraction", value) for value in (-0.1, 1.1, float("nan"))),
        *(("weight_decay", value) for value in (-0.1, float("nan"))),
        *(("beta_2", value) for value in (-0.1, 1.0, float("nan"))),
        *(("ema_momentum", value) for value in (-0.1, 1.0, float("nan"))),
        ("use_ema", "yes"),
        ("optimizer", "nonesuch"),
        ("precision", "float8"),
    ],
)
def test_a_value_out_of_its_range_is_refused_by_name(field, value):
    with pytest.raises(ValueError, match=field):
        TrainConfig(**{field: value})


def test_there_is_a_learning_rate_for_every_optimizer_and_family():
    assert LEARNING_RATES.keys() == OPTIMIZERS.keys()
    for optimizer, rates in LEARNING_RATES.items():
        for name, model in FAMILIES.items():
            assert TrainConfig(optimizer=optimizer).peak_learning_rate(model) == rates[name]
            assert TrainConfig(optimizer=optimizer, learning_rate=0.5).peak_learning_rate(model) == 0.5


def test_muons_have_the_learning_rate_of_the_model_also_inside_of_another_one():
    llama = tiny_config("llama", context_length=8).build_model(5)
    outer = keras.Sequential([llama])
    for optimizer in MUONS:
        for model in (llama, outer):
            assert TrainConfig(optimizer=optimizer).peak_learning_rate(model) == MODELS["llama"].learning_rate == 0.01
    assert TrainConfig(optimizer="adamw").peak_learning_rate(llama) == LEARNING_RATES["adamw"]["residual"]
    assert TrainConfig(learning_rate=0.5).peak_learning_rate(llama) == 0.5


UNLIKE = ("rnn", "lstm", "bilstm", "mingru", "mamba", "gated_deltanet", "hybrid", "transformer")


@often("name", [*MODELS], UNLIKE)
def test_the_models_without_a_residual_stream_are_recurrent(name):
    sizes = {"embedding_dim": 4, "units": 4, "num_heads": 2, "feed_forward_dim": 4, "context_length": 4, "num_tags": 2}
    sizes |= {"pattern": "rdgma", "num_layers": 5} if name == "hybrid" else {"num_layers": 2}
    assert family(sized(name, **sizes).build_model(5)) == (
        "recurrent" if name in {"rnn", "gru", "lstm", "bilstm"} else "residual"
    )


def test_what_is_given_goes_before_the_default_of_the_family():
    for name, model in FAMILIES.items():
        of_family = {"adam_lr_ratio": ADAM_LR_RATIOS[name], "ns_steps": NS_STEPS[name]}
        expected = {"global_clipnorm": 1.0, **of_family}
        assert TrainConfig().optimizer_options(model, STEPS) == expected
        assert TrainConfig(precision="bfloat16").optimizer_options(model, STEPS) == expected
        given = TrainConfig(adam_lr_ratio=0.7, global_clipnorm=2.0, precision="float16")
        expected = {**of_family, "global_clipnorm": 2.0, "adam_lr_ratio": 0.7, "loss_scale_factor": 1024.0}
        assert given.optimizer_options(model, STEPS) == expected
        for given, steps, momentum in (
            (0.7, 40, 0.7),
            (None, 2_000, 0.99),
            (None, 40, 0.5),
            (None, 20, 0),
            (None, 1, 0),
        ):
            averaged = TrainConfig(use_ema=True, ema_momentum=given).optimizer_options(model, steps)
            assert averaged == {"global_clipnorm": 1.0, **of_family, "use_ema": True, "ema_momentum": momentum}
        of_updates = TrainConfig(use_ema=True, gradient_accumulation_steps=4)  # a twentieth of 200 updates
        assert of_updates.optimizer_options(model, 800)["ema_momentum"] == 0.9
        momentum = {"global_clipnorm": 1.0, "momentum": 0.9, "nesterov": True}
        assert TrainConfig(optimizer="sgd").optimizer_options(model, STEPS) == momentum
        assert TrainConfig(optimizer="adamw").optimizer_options(model, STEPS) == {
            "global_clipnorm": 1.0,
            "weight_decay": 0.0,
        }


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_decay_and_beta_2_reach_the_optimizers_that_have_them_and_the_others_refuse_them(name):
    for field, optimizers, value in (
        ("weight_decay", "muon normuon adamw", 0.1),
        ("beta_2", "muon normuon adamw adam", 0.9),
    ):
        if name in optimizers.split():
            options = TrainConfig(optimizer=name, **{field: value}).optimizer_options(FAMILIES["residual"], STEPS)
            config = OPTIMIZERS[name](**options).get_config()
            assert config["adam_beta_2" if name in MUONS and field == "beta_2" else field] == value
        else:
            with pytest.raises(ValueError, match=f"{field}=.*expected None, or optimizer=muon or"):
                TrainConfig(optimizer=name, **{field: value})


@pytest.mark.parametrize("name", ["muon", "adamw"])
def test_weights_of_one_axis_do_not_decay(name):
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(3, bias_initializer="ones")])
    compile_model(model, TrainConfig(optimizer=name, weight_decay=0.5, learning_rate=0.1, warmup_steps=0), 10)
    before = [v.numpy() for v in model.trainable_variables]
    model.optimizer.apply([keras.ops.zeros_like(v) for v in model.trainable_variables])
    for old, variable, factor in zip(before, model.trainable_variables, (0.95, 1.0), strict=True):
        np.testing.assert_allclose(variable.numpy(), factor * old, rtol=1e-6)


@pytest.mark.parametrize("name", ["muon", "normuon", "adamw"])
def test_numbers_of_two_axes_do_not_decay(name):
    """A GRU's bias and a Mamba's decay rates are no matrices."""
    x = keras.Input((None, 4))
    model = keras.Model(
        x, [keras.layers.GRU(3)(x), layers.GRU(3)(x), layers.SelectiveStateSpace(2)(x), layers.CRF()(x)]
    )
    for variable in model.trainable_variables:
        variable.assign(np.ones(variable.shape))
    compile_model(model, TrainConfig(optimizer=name, weight_decay=0.5, learning_rate=0.1, warmup_steps=0), 10)
    model.optimizer.apply([keras.ops.zeros_like(v) for v in model.trainable_variables])
    changed = {v.name for v in model.trainable_variables if np.asarray(v).min() < 1}
    kept = {v.name for v in model.trainable_variables if np.asarray(v).min() == 1}
    assert {"kernel", "recurrent_kernel"} <= changed
    assert {"bias", "log_a", "transitions"} <= kept
    assert not {"bias", "log_a", "transitions"} & changed


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_every_optimizer_can_be_chosen_and_takes_its_options(name):
    assert set(typing.get_type_hints(TrainConfig)["optimizer"].__args__) == OPTIMIZERS.keys()
    train = TrainConfig(optimizer=name, global_clipnorm=0.5)
    model = FAMILIES["recurrent"]
    optimizer = OPTIMIZERS[name](train.peak_learning_rate(model), **train.optimizer_options(model, STEPS))
    assert type(optimizer).__name__.lower() == name
    assert float(optimizer.learning_rate) == pytest.approx(LEARNING_RATES[name]["recurrent"])
    assert optimizer.get_config()["global_clipnorm"] == 0.5
    assert optimizer.global_clipnorm is None  # or Keras would clip once more
    assert optimizer.weight_decay in (0.0, None)  # as Muon has it


@pytest.mark.parametrize("precision", DTYPE_POLICIES)
def test_a_precision_is_a_policy_of_keras_that_keeps_weights_in_float32(precision):
    policy = keras.dtype_policies.get(TrainConfig(precision=precision).dtype_policy)
    assert (policy.compute_dtype, policy.variable_dtype) == (precision, "float32")


@pytest.mark.parametrize("due", [(50, 500, 500), (7, 14, 21), (3, 8, 4), (1, 500, 500), (30, 60, 90), (29, 29, 29)])
def test_as_many_steps_run_at_once_as_leave_nothing_due_between(due):
    steps = TrainConfig(log_every=due[0], validate_every=due[1], checkpoint_every=due[2]).steps_per_execution
    fits = [n for n in range(1, 26) if all(every % n == 0 for every in due)]
    assert steps == max(fits)


@pytest.mark.parametrize("first", [0, 1, 7, 30, 50, 64, 999, 1000])
def test_from_any_step_on_no_step_at_which_something_is_due_is_passed(first):
    train = TrainConfig(log_every=10, validate_every=40, checkpoint_every=100)
    at_once = train.steps_per_execution_from(first)
    seen = set(range(first, first + 1000, at_once))
    assert 1 <= at_once <= 25
    assert {step for step in range(first, first + 1000) if step % 10 == 0} <= seen


def test_a_clock_may_not_choose_where_to_go_back_to():
    with pytest.raises(ValueError, match="checkpoint_every_seconds"):
        TrainConfig(checkpoint_every_seconds=5.0, on_nan="rollback")


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
        fit_resumable(tmp_path / "run", model, dataset_fn, 6, steps, train, None)
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
