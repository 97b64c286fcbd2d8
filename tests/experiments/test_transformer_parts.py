"""The study of the parts of a Transformer: intervals, verdicts, variants, refusals, and what a run trains on."""

import dataclasses
import json
import pathlib
import statistics

import keras
import numpy as np
import pytest

from experiments import transformer_parts as study
from experiments.transformer_parts import MATCHED, PARTS, TransformerPartsConfig
from keras_seq.layers import CausalDepthwiseConv1D, TransformerBlock
from keras_seq.layers.introspection import iter_layers
from keras_seq.models import TransformerConfig
from keras_seq.runs.folders import dataclass_from_dict
from keras_seq.runs.texts import SplitCorpus
from tests.conftest import often

SMALL = TransformerPartsConfig(sequence_length=8, transformer=TransformerConfig(16, 2, 4, 32))


def rows(**losses):
    """A row for each seed of each variant, with these held-out losses."""
    return [
        {
            **{"variant": name, "seed": seed, "held_out_loss": loss, "val_loss": loss + 1},
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
    assert table["good"][2:] == ["-1.0000 (-1.0000 to -1.0000)", "2.2500 ± 0.2500", "0.50"]


def test_one_seed_gives_no_interval(drawn):
    variants = study.by_variant(rows(baseline=[2], other=[1]))
    assert "not certainly different: other -1.0000 (one seed, so no interval)" in study.verdict(variants)
    (axes,) = drawn(study.plot, pathlib.Path(), variants)
    assert [label.get_text() for label in axes.get_yticklabels()] == ["other"]
    assert "no other variant" in study.verdict(study.by_variant(rows(baseline=[2])))


@pytest.fixture(scope="module")
def baseline():
    """The config of the baseline, its batch size and its number of parameters."""
    config, batch_size = SMALL.variant(study.BASELINE, 11)
    return config, batch_size, config.build_model(11).count_params()


@often("name", [*PARTS], {*PARTS} - {"deeper"})
def test_a_variant_differs_by_what_it_says(baseline, name):
    (baseline, batch_size, count), (variant, size) = baseline, SMALL.variant(name, 11)
    fields = dataclasses.asdict(variant)
    changes = {**PARTS[name], "batch_size": PARTS[name].get("batch_size", 12)}
    assert (batch_size, size) == (12, changes.pop("batch_size"))
    assert {key: fields[key] for key in changes} == changes
    if name not in MATCHED:
        assert fields == dataclasses.asdict(baseline) | changes
    model = variant.build_model(11)
    assert model.count_params() == pytest.approx(count, rel=0.1)  # at these sizes
    block = next(layer for layer in iter_layers(model) if isinstance(layer, TransformerBlock))
    expected = [0.0, 4.0] if fields["activation"] == "relu_squared" else [-0.0455, 1.9545]  # relu^2, gelu
    np.testing.assert_allclose(block.activation(np.array([-2.0, 2.0], "float32")), expected, atol=1e-3)


@pytest.mark.parametrize(("name", "has_one"), [(study.BASELINE, True), ("no-convolution", False)])
def test_the_baseline_is_the_default_with_its_convolutions(name, has_one):
    model = SMALL.variant(name, 11)[0].build_model(11)
    assert any(isinstance(layer, CausalDepthwiseConv1D) for layer in iter_layers(model)) == has_one


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ("--parts sinks sinks", ("--parts", "sinks")),
        ("--parts soft-cap", ("soft-cap", "no-output-gate")),
    ],
)
def test_a_mistake_is_refused(refuses, arguments, named):
    refuses("transformer_parts", arguments, *named)


def test_seeds_are_paired_and_text_is_held_out(smoke):
    config = dataclass_from_dict(
        TransformerPartsConfig,
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
    assert seeds == {(name, seed) for name in (study.BASELINE, *config.parts) for seed in range(config.num_seeds)}
    losses = {name: [r["held_out_loss"] for r in smoke.rows if r["variant"] == name] for name, _ in seeds}
    mean = statistics.mean(losses["no-convolution"]) - statistics.mean(losses["baseline"])
    assert f"no-convolution {mean:+.4f}" in " ".join(smoke.report.split())
