import itertools
import json

import keras
import numpy as np
import pytest

from experiments import loss_by_position as study
from keras_seq.evaluation import Evaluator
from keras_seq.models import LSTMConfig, TransformerConfig
from keras_seq.runs.folders import dataclass_from_dict
from keras_seq.runs.texts import SplitCorpus

N, STRIDE, MAX_LENGTH, BLOCK = 150, 8, 32, 64
IDS = np.random.default_rng(0).integers(6, size=N)
STARTS = study.window_starts(IDS, STRIDE, MAX_LENGTH)


def some_losses(length=MAX_LENGTH, seed=0):
    return np.random.default_rng(seed).uniform(0, 5, (len(STARTS), length)).astype("float32")


def one_character_at_a_time(losses):
    """The losses of each character in each octave, by looking for it in every window."""
    found = {}
    for place in range(N):
        row = []
        for low in (4, 8, 16):
            there = [
                losses[n, place - start]
                for n, start in enumerate(STARTS)
                if low <= place - start < min(2 * low, MAX_LENGTH)
            ]
            row.append(np.mean(there) if len(there) == max(1, low // STRIDE) else None)
        if None not in row:
            found[place] = row
    return found


def test_every_window_is_whole_and_begins_a_stride_after_the_last():
    assert STARTS.tolist() == list(range(0, N - MAX_LENGTH, STRIDE))
    assert STARTS[-1] + MAX_LENGTH < N  # the id behind the last character is there
    assert STARTS[-1] + STRIDE + MAX_LENGTH >= N


def test_octaves_are_those_of_a_search_through_every_window():
    losses = some_losses()
    of_octaves, places = study.octaves(losses, STARTS, STRIDE, MAX_LENGTH)
    expected = one_character_at_a_time(losses)
    assert places.tolist() == list(expected)
    assert len(places) > 30
    np.testing.assert_allclose(of_octaves, list(expected.values()), rtol=1e-6)


def test_a_model_of_a_shorter_context_is_scored_on_the_same_characters():
    losses = some_losses()
    whole, places = study.octaves(losses, STARTS, STRIDE, MAX_LENGTH)
    for length, columns in ((8, 1), (16, 2)):
        part, same = study.octaves(losses[:, :length], STARTS, STRIDE, MAX_LENGTH)
        np.testing.assert_array_equal(same, places)
        np.testing.assert_array_equal(part, whole[:, :columns])


def test_what_differs_from_text_to_text_is_not_taken_for_a_worth_of_the_past():
    """A loss that belongs to the character alone falls by nothing, and with no error, however uneven the text."""
    text = np.random.default_rng(3).exponential(2.0, N)
    losses = text[STARTS[:, None] + np.arange(MAX_LENGTH)] - 0.1 * np.log2(np.arange(1, MAX_LENGTH + 1) / 4).clip(
        0
    ).astype(int)
    of_octaves, places = study.octaves(losses, STARTS, STRIDE, MAX_LENGTH)
    sums, counts = study.block_sums(of_octaves, places, BLOCK)
    gain, error = study.Estimate.of(sums[:, 0] - sums[:, 2], counts)
    by_octave = -0.1 * np.log2(np.arange(1, MAX_LENGTH + 1) / 4).clip(0).astype(int)
    assert gain == pytest.approx(by_octave[4:8].mean() - by_octave[16:32].mean(), abs=0.03)
    assert error < 0.02 < 2.0 / np.sqrt(len(places))


def test_the_means_of_bins_are_plain_means():
    losses, bins = some_losses(), [0, 1, 2, 5, 32]
    for (low, high), (mean, error) in zip(
        itertools.pairwise(bins), study.by_bin(losses, STARTS, bins, BLOCK), strict=True
    ):
        assert mean == pytest.approx(losses[:, low:high].mean(dtype="float64"))
        assert 0 < error < 1.5
    alike = np.broadcast_to(losses[0], losses.shape)
    np.testing.assert_allclose([e.error for e in study.by_bin(alike, STARTS, bins, BLOCK)], 0, atol=1e-9)


def test_bins_get_wider_by_half_an_octave():
    assert study.bin_edges(1, 64) == [1, 2, 3, 4, 6, 8, 11, 16, 23, 32, 45, 64]
    assert study.bin_edges(64, 512) == [64, 91, 128, 181, 256, 362, 512]
    assert study.bin_edges(48, 96) == [48, 68, 96]
    assert study.bin_edges(64, 64) == [64]


def test_the_first_positions_are_scored_in_many_windows_and_no_position_is_left_out():
    model = LSTMConfig(embedding_dim=3, units=4).build_model(6)
    losses = study.window_losses(Evaluator(model), IDS, STARTS, MAX_LENGTH)
    found = study.position_scores(Evaluator(model), IDS, (STRIDE, MAX_LENGTH))["by_position"]
    assert found["edges"] == [0, 1, 2, 3, 4, 6, 8, 11, 16, 23, 32]
    assert len(found["losses"]) == len(found["standard_errors"]) == 10
    alone = [model(IDS[None, start : start + 1])[0, 0] for start in range(N - STRIDE)]  # S / 8 is 1: every character
    targets = IDS[1 : N - STRIDE + 1]
    first = keras.losses.sparse_categorical_crossentropy(targets, np.stack(alone), from_logits=True)
    assert found["losses"][0] == pytest.approx(float(np.mean(first)), rel=1e-5)
    assert found["losses"][-1] == pytest.approx(losses[:, 23:].mean(), rel=1e-5)


def test_the_error_of_a_mean_is_that_of_its_blocks():
    values = np.random.default_rng(1).normal(2.0, 3.0, 4000)
    sums, counts = study.block_sums(values, np.arange(4000), 100)
    mean, error = study.Estimate.of(sums, counts)
    assert mean == pytest.approx(values.mean())
    by_block = values.reshape(40, 100).mean(axis=1)
    assert error == pytest.approx(by_block.std(ddof=1) / np.sqrt(40))
    repeated = np.repeat(values[::100], 100)  # blocks of one value each: 40 draws, not 4,000
    sums, counts = study.block_sums(repeated, np.arange(4000), 100)
    assert study.Estimate.of(sums, counts)[1] == pytest.approx(values[::100].std(ddof=1) / np.sqrt(40))


def test_blocks_without_a_character_do_not_count():
    sums, counts = study.block_sums(np.ones((3, 2)), np.array([1, 25, 26]), 10)
    assert counts.tolist() == [1, 2]
    assert sums.tolist() == [[1, 1], [2, 2]]


@pytest.mark.parametrize(
    "model_config",
    [
        LSTMConfig(embedding_dim=3, units=4),
        TransformerConfig(4, num_layers=1, num_heads=1, feed_forward_dim=4, context_length=16),
    ],
)
def test_windows_are_scored_each_on_its_own(model_config):
    model = model_config.build_model(6)
    losses = study.window_losses(Evaluator(model, batch_size=4), IDS, STARTS, 16)
    assert (losses.shape, losses.dtype) == ((len(STARTS), 16), "float32")
    for n in (0, 5, len(STARTS) - 1):
        window = IDS[STARTS[n] : STARTS[n] + 17]
        expected = keras.losses.sparse_categorical_crossentropy(
            window[1:], model(window[None, :-1])[0], from_logits=True
        )
        np.testing.assert_allclose(losses[n], expected, rtol=1e-5)


def test_a_transformer_takes_no_more_than_its_context():
    model = TransformerConfig(4, num_layers=1, num_heads=1, feed_forward_dim=4, context_length=8).build_model(6)
    with pytest.raises(ValueError, match="at most context_length=8"):
        study.window_losses(Evaluator(model), IDS, STARTS, 16)


def a_row(model, sequence_length, by_octave, noise=0.01):
    """A run whose loss behind 4-8, 8-16, ... characters is as given, 10 characters in each of 30 blocks."""
    rng = np.random.default_rng(len(by_octave))
    means = np.array(by_octave) + rng.normal(0, noise, (30, len(by_octave)))
    edges = [0, *study.bin_edges(1, 4 * 2 ** len(by_octave))]
    return {
        **{"model": model, "val_sequence_length": sequence_length, "parameters": 1000, "train_seconds": 12.0},
        "val_loss": float(np.mean(by_octave)),
        "octaves": {"first": 4, "sums": (10 * means).tolist(), "counts": [10] * 30},
        "by_position": {
            "edges": edges,
            "losses": np.linspace(3, by_octave[-1], len(edges) - 1).tolist(),
            "standard_errors": [0.01] * (len(edges) - 1),
        },
    }


ROWS = [
    a_row("lstm", 8, (1.6, 1.5, 1.55)),
    a_row("transformer", 8, (1.7,)),
    a_row("lstm", 32, (1.6, 1.5, 1.5)),
    a_row("transformer", 32, (1.7, 1.5, 1.3)),
]
RESULTS = [study.RunResult(row) for row in ROWS]


def test_the_table_marks_what_is_beyond_the_training():
    table = study.table(RESULTS)
    lstm, transformer, long_lstm, long_transformer = (dict(zip(table.header, row, strict=True)) for row in table.rows)
    assert [lstm[name].endswith("*") for name in ("4-8", "8-16", "16-32")] == [False, True, True]
    assert float(transformer["4-8"]) == pytest.approx(1.7, abs=0.01)
    assert [transformer[name] for name in ("8-16", "16-32", "falls by", "per doubling")] == ["-"] * 4
    assert "*" not in "".join([*long_lstm.values(), *long_transformer.values()])
    fall, error = map(float, long_transformer["falls by"].split(" ± "))
    assert fall == pytest.approx(0.4, abs=0.01)
    assert error == pytest.approx(0.01 * np.sqrt(2 / 30), rel=0.4)
    assert float(long_transformer["per doubling"].split(" ± ")[0]) == pytest.approx(0.2, abs=0.005)
    assert all(table.is_numeric[1:])


def test_the_verdict_says_who_goes_on_and_who_is_flat():
    total, last = study.verdict(RESULTS).split(". In nats")[0].split(";")
    assert "windows of 32 tokens, from 4-8 to 16-32" in total
    for part, differences, significant in ((total, (0.1, 0.4, 0.3), (1, 1, 1)), (last, (0, 0.2, 0.2), (0, 1, 1))):
        estimates = part.split(" by ")[1].split(", ")
        for text, value, is_significant in zip(estimates, differences, significant, strict=True):
            number = text.removeprefix("a difference of ").split(" ± ")[0]
            assert float(number) == pytest.approx(value, abs=0.01)
            assert ("not significant" not in text) == is_significant


@pytest.mark.parametrize("number", [2, 3, 4, 7])
def test_the_slope_is_that_of_a_line_of_least_squares(number):
    y = np.random.default_rng(number).normal(size=number)
    falls = {name: weights @ y for name, weights in study.contrasts(number).items()}
    assert falls["per doubling"] == pytest.approx(-np.polyfit(np.arange(number), y, 1)[0])
    assert (falls["falls by"], falls["last doubling"]) == pytest.approx((y[0] - y[-1], y[-2] - y[-1]))


def test_a_difference_is_taken_character_by_character():
    """Two models that agree but for a constant differ by it, with no error, however uneven the text."""
    lstm, other = (a_row("lstm", 32, (1.6, 1.5, 1.4), noise=0.5) for _ in range(2))
    sums = np.array(other["octaves"]["sums"]) - [[0, 0, 1]]
    transformer = {**other, "model": "transformer", "octaves": {**other["octaves"], "sums": sums.tolist()}}
    assert "a difference of 0.1000 ± 0.0000;" in study.verdict([study.RunResult(row) for row in (lstm, transformer)])


def test_the_plot_has_a_curve_a_run_dashed_beyond_its_training(tmp_path, drawn):
    curves, changes = drawn(study.plot, tmp_path, RESULTS)
    lines = [line for line in curves.get_lines() if len(line.get_xdata())]
    assert [line.get_linestyle() for line in lines] == ["-", "--", "-", "-", "-"]
    assert len({line.get_color() for line in lines}) == 2
    assert lines[1].get_color() == lines[0].get_color()
    assert lines[1].get_xdata()[0] == lines[0].get_xdata()[-1]  # joined
    assert max(lines[0].get_xdata()) < 8 < max(lines[1].get_xdata()) < 32
    assert lines[0].get_alpha() < lines[3].get_alpha()  # longer windows are stronger
    drawn = [container.lines[0].get_linestyle() for container in changes.containers]
    assert drawn == ["--", "-", "-"]  # a Transformer with one octave has nothing to compare


def test_both_families_are_of_one_size_and_read_as_much():
    config = study.LossByPositionConfig()
    sizes = [config.model_config(family, 64).build_model(65).count_params() for family in study.FAMILIES]
    assert max(sizes) < 1.05 * min(sizes)
    assert {config.batch_tokens // length * length for length in config.sequence_lengths} == {config.batch_tokens}
    assert config.steps * config.batch_tokens == config.tokens


def test_every_family_is_trained_at_every_length_on_as_much(smoke):
    assert [(row["model"], row["val_sequence_length"]) for row in smoke.rows] == [
        (family, length) for length in (8, 16) for family in ("lstm", "transformer")
    ]
    assert {(row["train_tokens"], row["batch_size"] * row["val_sequence_length"]) for row in smoke.rows} == {(512, 64)}


def test_scores_are_those_of_the_saved_model(smoke):
    row = smoke.rows[0]
    saved = json.loads((smoke.folder / row["run"] / "config.json").read_text(encoding="utf-8"))["experiment"]
    config = dataclass_from_dict(study.LossByPositionConfig, saved)
    ids = SplitCorpus(config.corpus, smoke.folder).validation
    model = keras.models.load_model(smoke.folder / row["run"] / "model.keras")
    windows = (len(ids) - 1) // 8
    x, y = (ids[start : start + windows * 8].reshape(windows, 8) for start in (0, 1))
    losses = np.asarray(keras.losses.sparse_categorical_crossentropy(y, model(x), from_logits=True))
    assert row["val_loss"] == pytest.approx(losses.mean(), rel=1e-5)
    # windows start at every character here, so that these are an eighth of them
    np.testing.assert_allclose(row["by_position"]["losses"][:4], losses.mean(axis=0)[:4], rtol=0.02)
    assert row["by_position"]["edges"][-1] == 16  # a recurrent state has no length
    assert smoke.rows[1]["by_position"]["edges"][-1] == 8
