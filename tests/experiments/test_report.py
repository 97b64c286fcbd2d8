import statistics

import pytest

from experiments.frame import report


def make_row(model, seed, parameters=100_000, val_loss=2.0, streaming=1.5):
    return {
        "model": model,
        "seed": seed,
        "parameters": parameters,
        "train_tokens": 1_536_000,
        "train_flops": 7.25e12,
        "train_seconds": 61.4,
        "tokens_per_second": 25_016.0,
        "train_loss_per_character": 1.25,
        "val_loss_per_character": val_loss,
        "val_sequence_length": 64,
        "val_loss_per_character_streaming": streaming,
        "val_bits_per_character": 2.885,
        "val_bits_per_character_streaming": 2.164,
        "val_perplexity": 7.389,
        "val_word_perplexity": 81_234.0,
        "sample": "To be,\n  or not",
    }


def cells(line):
    return [cell.strip() for cell in line.strip("|").split("|")]


def test_the_table_shows_every_figure_under_its_name():
    header, rule, *lines = report.table(
        [make_row("lstm", 0), make_row("transformer", 1, parameters=99_000)]
    ).splitlines()
    assert len({len(line) for line in (header, rule, *lines)}) == 1  # aligned
    shown = [dict(zip(cells(header), cells(line), strict=True)) for line in lines]
    assert [row["model"] for row in shown] == ["lstm", "transformer"]
    assert [row["seed"] for row in shown] == ["0", "1"]
    assert [row["parameters"] for row in shown] == ["100,000", "99,000"]
    assert (shown[0]["val_loss"], shown[0]["val_loss_streaming"]) == ("2.000", "1.500")
    assert (shown[0]["val bits/char"], shown[0]["val bits/char streaming"]) == ("2.885", "2.164")
    assert (shown[0]["train seconds"], shown[0]["tokens/s"], shown[0]["train tokens"]) == ("61", "25,016", "1,536,000")
    assert (shown[0]["train TFLOP"], shown[0]["perplexity"], shown[0]["perplexity/word"]) == ("7.25", "7.39", "81,234")


def test_the_spread_is_mean_and_standard_deviation_over_seeds():
    losses = [2.0, 2.1, 2.5]
    rows = [make_row("lstm", seed, val_loss=loss) for seed, loss in enumerate(losses)] + [make_row("transformer", 0)]
    header, _, lstm, transformer = report.seeds_table(rows).splitlines()
    lstm, transformer = (dict(zip(cells(header), cells(line), strict=True)) for line in (lstm, transformer))
    assert lstm["val_loss"] == f"{statistics.mean(losses):.3f} ± {statistics.stdev(losses):.3f}"
    assert (lstm["seeds"], transformer["seeds"], transformer["val_loss"]) == ("3", "1", "2.000")


@pytest.mark.parametrize(("parameters", "remarked"), [(104_900, False), (105_100, True)])
def test_models_of_different_sizes_are_pointed_out(parameters, remarked):
    notes = report.column_notes([make_row("lstm", 0), make_row("transformer", 0, parameters=parameters)])
    assert ("more than the 5 %" in notes) is remarked


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0"),
        (1, "1"),
        (950, "950"),
        (1000, "1 k"),
        (12_500, "12.5 k"),
        (1_500_000, "1.5 M"),
        (2_000_000_000, "2000 M"),
    ],
)
def test_large_numbers_on_the_axis_are_short(value, text):
    assert report.thousands(value) == text


@pytest.mark.parametrize(
    ("flops", "text"), [(5e8, "0.0005"), (1.234e10, "0.012"), (7.41e12, "7.41"), (2.5e15, "2,500.00")]
)
def test_operations_are_in_tera(flops, text):
    assert report.tera(flops) == text


@pytest.mark.parametrize(
    ("value", "text"), [(None, "-"), (9.96, "10"), (1234.4, "1,234"), (999_999.0, "999,999"), (2.04e12, "2.0e+12")]
)
def test_a_perplexity_that_is_not_there_is_no_number(value, text):
    assert report.perplexity(value) == text
