"""The study of the parts of a model: intervals, verdicts, variants, refusals, and what a run trains on."""

import dataclasses
import json
import pathlib
import statistics
import types

import keras
import numpy as np
import pytest

from experiments import parts as study
from experiments.parts import PARTS, PartsConfig
from keras_seq.data import RandomWindows
from keras_seq.layers import LSTM, CausalDepthwiseConv1D, RMSNormalization, TransformerBlock
from keras_seq.layers.introspection import iter_layers
from keras_seq.models import LSTMConfig, TransformerConfig
from keras_seq.runs.folders import dataclass_from_dict
from keras_seq.runs.texts import SplitCorpus
from keras_seq.training import TrainConfig
from keras_seq.training.run_folder import write_checksummed
from tests.conftest import often

SIZES = {"transformer": TransformerConfig(16, 2, 4, 32), "lstm": LSTMConfig(8, 32)}
SMALL = {model: PartsConfig(model, sequence_length=8, **SIZES) for model in PARTS}


def rows(**losses):
    """A row for each seed of each variant, with these held-out losses."""
    return [
        {
            **{"variant": name, "seed": seed, "held_out_loss": loss},
            **{"parameters": 1000, "train_tokens": 10, "train_seconds": 1 if name == "baseline" else 2},
        }
        for name, values in losses.items()
        for seed, loss in enumerate(values)
    ]


def test_the_interval_is_that_of_students_t():
    """Differences 1, 2, 3: mean 2, standard error 1 / sqrt(3), and 4.303 is the quantile of two degrees of freedom."""
    difference = study.seed_difference([5, 5, 5], [6, 7, 8])
    assert difference.mean == pytest.approx(2)
    assert [difference.low, difference.high] == pytest.approx([2 - 4.303 / 3**0.5, 2 + 4.303 / 3**0.5], rel=1e-3)
    assert not difference.significant
    shifted = study.seed_difference([5, 50, 500], [6, 51, 501])
    assert (shifted.low, shifted.high) == (1, 1)  # what seeds share is no part of it
    assert not study.seed_difference([1.0], [0.5]).significant  # one pair says nothing about others


def test_parts_are_told_by_their_intervals():
    variants = study.by_variant(rows(baseline=[2, 2.25, 2.5], bad=[3, 3.25, 3.5], good=[1, 1.25, 1.5], odd=[1, 3, 2.6]))
    assert [variant.name for variant in variants] == ["baseline", "good", "odd", "bad"]
    said = study.verdict(variants)
    assert "lower: good -1.0000; higher: bad +1.0000; not certainly different: odd -0.0500 (3 seeds" in said
    table = {row[0]: row[1:] for row in study.table(variants).rows}
    assert table["baseline"][-1] == "1.00"
    assert table["good"][2:] == ["-1.0000 (-1.0000 to -1.0000)", "0.50"]


def test_one_seed_gives_no_interval(drawn):
    variants = study.by_variant(rows(baseline=[2], other=[1]))
    assert "not certainly different: other -1.0000 (one seed, so no interval)" in study.verdict(variants)
    assert [row[3] for row in study.table(variants).rows] == ["", "-1.0000"]
    (axes,) = drawn(study.plot, pathlib.Path(), variants)
    assert [label.get_text() for label in axes.get_yticklabels()] == ["other"]
    assert "no other variant" in study.verdict(study.by_variant(rows(baseline=[2])))


def build(model, name):
    """Return the recipe of a variant, its config and its model of 11 characters."""
    recipe = SMALL[model].variants[name]
    config = SMALL[model].model_config(recipe, 11)
    return recipe, config, config.build_model(11)


@pytest.fixture(scope="module")
def baselines():
    """The baseline of each model, as `build` returns it."""
    return {model: build(model, study.BASELINE) for model in PARTS}


CASES = [(model, name) for model, parts in PARTS.items() for name in parts]


@often(("model", "name"), CASES, {*CASES} - {("transformer", "deeper"), ("lstm", "two-layers")})
def test_a_variant_differs_by_what_it_says(baselines, model, name):
    _, baseline, base_model = baselines[model]
    recipe, variant, built = build(model, name)
    fields = dataclasses.asdict(variant)
    assert fields == dataclasses.asdict(baseline) | recipe.fields or recipe.matched
    assert {key: fields[key] for key in recipe.fields} == recipe.fields
    assert recipe != study.Recipe()
    assert built.count_params() == pytest.approx(base_model.count_params(), rel=0.1)  # at these sizes
    if model == "transformer":
        block = next(layer for layer in iter_layers(built) if isinstance(layer, TransformerBlock))
        expected = [0.0, 4.0] if fields["activation"] == "relu_squared" else [-0.0455, 1.9545]  # relu^2, gelu
        np.testing.assert_allclose(block.activation(np.array([-2.0, 2.0], "float32")), expected, atol=1e-3)
        convolutions = [layer for layer in iter_layers(built) if isinstance(layer, CausalDepthwiseConv1D)]
        assert bool(convolutions) == (name != "no-convolution")
    else:
        kinds = [type(layer) for layer in built.blocks]
        assert kinds.count(LSTM) == (2 if name == "two-layers" else 1)
        assert kinds.count(RMSNormalization) == (name == "normalization")


def test_no_other_model_has_the_part(baselines):
    with pytest.raises(ValueError, match="expected parts of the lstm: random-windows, two-layers"):
        PartsConfig("lstm", ("tied", "sinks"))
    assert [*PartsConfig("lstm", ("tied",)).variants] == ["baseline", "tied"]
    assert [*PartsConfig("lstm").variants] == ["baseline", *PARTS["lstm"]]


def test_what_other_options_give_the_baseline_is_no_part():
    """Same seeds, so its difference would be measured as exactly zero."""
    config = PartsConfig("lstm", batch_size=6, lstm=LSTMConfig(dropout=0.1), train=TrainConfig(use_ema=False))
    assert {*PARTS["lstm"]} - {*config.variants} == {"batch-6", "dropout", "last-weights"}
    assert {*PARTS["transformer"]} - {*PartsConfig(batch_size=24).variants} == {"batch-24"}


def test_a_folder_of_all_parts_stays_one():
    saved = PartsConfig()
    with pytest.raises(ValueError, match="--parts sinks: expected none"):
        dataclasses.replace(saved, parts=("sinks",)).check_resumed(saved)
    dataclasses.replace(saved, parts=("sinks", "tied")).check_resumed(dataclasses.replace(saved, parts=("sinks",)))


def test_a_longer_training_keeps_the_windows_of_the_shorter(tmp_path):
    config = dataclasses.replace(SMALL["lstm"], tokens=120, parts=("tied",))
    data = types.SimpleNamespace(train=range(100))
    assert study.baseline_windows(config, data, tmp_path) == "stateful"
    (tmp_path / "baseline-seed0").mkdir()
    write_checksummed(tmp_path / "baseline-seed0/config.json", {"windows": "random"})
    assert study.baseline_windows(config, data, tmp_path) == "random"
    with pytest.raises(ValueError, match=r"--parts random-windows: the baseline has random windows too, as 120 of 100"):
        study.baseline_windows(dataclasses.replace(config, parts=("random-windows",)), data, tmp_path)


def test_the_second_head_predicts_the_token_after_the_next(baselines):
    """The added loss is 0.3 times the mean cross-entropy of a head on the same vectors, by NumPy."""
    model = baselines["transformer"][2]
    windows = RandomWindows(np.arange(40) % 11, batch_size=2, sequence_length=8)
    training_model, _ = study.next_two(model, windows)
    ids, targets = windows.batch(0)
    logits = training_model(ids, training=True)
    np.testing.assert_allclose(logits, model(ids), rtol=1e-5, atol=1e-6)
    (loss,) = training_model.losses
    head = training_model.layers[-1].head
    z = np.asarray(model.hidden_states(ids)[0], "float64") @ np.asarray(head.kernel, "float64")
    log_p = z - np.logaddexp.reduce(z, axis=-1, keepdims=True)
    expected = [log_p[b, t, targets[b, t + 1]] for b in range(2) for t in range(6)]
    assert float(loss) == pytest.approx(-0.3 * np.mean(expected), rel=1e-5)
    names = {id(weight) for weight in training_model.trainable_weights}
    assert names == {id(weight) for weight in [*model.trainable_weights, head.kernel]}


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ("--parts sinks sinks", ("--parts", "sinks")),
        ("--parts soft-cap", ("soft-cap", "no-output-gate")),
        ("--smoke --model lstm --parts random-windows", ("random-windows", "640 of ")),
        ("--model lstm --parts sinks", ("--parts sinks", "two-layers")),
        ("--transformer.context-length 8", ("--transformer.context-length 8", "the --sequence-length")),
        ("--parts sinks last-weights --train.no-use-ema", ("--parts last-weights", "the other options")),
    ],
)
def test_a_mistake_is_refused(refuses, arguments, named):
    refuses("parts", arguments, *named)


def test_seeds_are_paired_and_text_is_held_out(smoke):
    config = dataclass_from_dict(
        PartsConfig,
        json.loads((smoke.folder / smoke.rows[0]["run"] / "config.json").read_text(encoding="utf-8"))["experiment"],
    )
    data = SplitCorpus(config.corpus, smoke.folder, config.sequence_length + 1, held_out=True)
    assert data.train_text + data.held_out_text + data.validation_text == data.corpus.text
    row = smoke.rows[-1]
    model = keras.models.load_model(smoke.folder / row["run"] / "model.keras")
    length = config.sequence_length
    windows = (len(data.held_out) - 1) // length
    x, y = (data.held_out[start : start + windows * length].reshape(windows, length) for start in (0, 1))
    z = np.asarray(model(x, training=False), "float64")
    losses = np.logaddexp.reduce(z, axis=-1) - np.take_along_axis(z, y[..., None], axis=-1)[..., 0]
    assert row["held_out_loss"] == pytest.approx(losses.mean(), abs=2e-5)
    seeds = {(row["variant"], row["seed"]) for row in smoke.rows}
    _, part = config.variants
    assert seeds == {(name, seed) for name in config.variants for seed in range(config.num_seeds)}
    losses = {name: [r["held_out_loss"] for r in smoke.rows if r["variant"] == name] for name, _ in seeds}
    mean = statistics.mean(losses[part]) - statistics.mean(losses["baseline"])
    assert f"{part} {mean:+.4f}" in " ".join(smoke.report.split())
