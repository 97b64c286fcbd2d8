import json
import statistics

import matplotlib.pyplot as plt
import pytest
from matplotlib.legend import Legend

from experiments import report


def make_row(model, seed, parameters=100_000, cold=2.0, warm=1.5):
    return {
        "model": model,
        "seed": seed,
        "parameters": parameters,
        "training_tokens": 1_536_000,
        "training_seconds": 61.4,
        "tokens_per_second": 25_016.0,
        "training_nats_per_character": 1.25,
        "cold_nats_per_character": cold,
        "cold_context": 64,
        "warm_nats_per_character": warm,
        "bits_per_character": 2.885,
        "warm_bits_per_character": 2.164,
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
    assert (shown[0]["cold nats"], shown[0]["warm nats"]) == ("2.000", "1.500")
    assert (shown[0]["cold bits"], shown[0]["warm bits"]) == ("2.885", "2.164")
    assert (shown[0]["seconds"], shown[0]["tokens/s"], shown[0]["training tokens"]) == ("61", "25,016", "1,536,000")


def test_the_spread_is_mean_and_standard_deviation_over_seeds():
    colds = [2.0, 2.1, 2.5]
    rows = [make_row("lstm", seed, cold=cold) for seed, cold in enumerate(colds)] + [make_row("transformer", 0)]
    header, _, lstm, transformer = report.spread(rows).splitlines()
    lstm, transformer = (dict(zip(cells(header), cells(line), strict=True)) for line in (lstm, transformer))
    assert lstm["cold nats"] == f"{statistics.mean(colds):.3f} ± {statistics.stdev(colds):.3f}"
    assert (lstm["seeds"], transformer["seeds"], transformer["cold nats"]) == ("3", "1", "2.000")


@pytest.mark.parametrize(("parameters", "remarked"), [(104_900, False), (105_100, True)])
def test_models_of_different_sizes_are_pointed_out(parameters, remarked):
    notes = report.notes([make_row("lstm", 0), make_row("transformer", 0, parameters=parameters)])
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


@pytest.fixture
def comparison(tmp_path):
    """A folder of two models with two seeds each, its rows, and their lines by run."""
    rows, lines = [], {}
    for model in ("lstm", "transformer"):
        for seed in (0, 1):
            row = make_row(model, seed)
            run = f"{model}-seed{seed}"
            losses = [4.0 - seed, 3.0, 2.5]
            lines[run] = [
                {"tokens": 100 * (n + 1), "split": "train", "nats_per_token": loss} for n, loss in enumerate(losses)
            ]
            lines[run] += [
                {"tokens": tokens, "split": "validation", "nats_per_token": 3.5, "warm_nats_per_token": 3.25}
                for tokens in (150, 300)
            ]
            (tmp_path / run).mkdir()
            (tmp_path / run / "metrics.jsonl").write_text("\n".join(map(json.dumps, lines[run])) + "\n")
            rows.append(row)
    return tmp_path, rows, lines


def test_the_picture_shows_every_point_in_one_colour_a_model_training_fainter(comparison, monkeypatch):
    folder, rows, lines = comparison
    monkeypatch.setattr(plt, "close", lambda figure: None)
    report.draw(folder, rows)
    axes, ends = plt.gcf().axes
    monkeypatch.undo()
    plt.close("all")
    assert "tokens seen" in axes.get_xlabel()
    assert "nats per character" in axes.get_ylabel()
    drawn = axes.get_lines()
    assert len(drawn) == 3 * len(rows)
    for row, curves in zip(rows, (drawn[n : n + 3] for n in range(0, len(drawn), 3)), strict=True):
        points = lines[f"{row['model']}-seed{row['seed']}"]
        train, cold, warm = (list(map(tuple, curve.get_xydata())) for curve in curves)
        assert train == [(p["tokens"], p["nats_per_token"]) for p in points if p["split"] == "train"]
        assert cold == [(p["tokens"], p["nats_per_token"]) for p in points if p["split"] == "validation"]
        assert warm == [(p["tokens"], p["warm_nats_per_token"]) for p in points if p["split"] == "validation"]
        assert len({curve.get_color() for curve in curves}) == 1
        assert curves[0].get_alpha() < 1
    assert len({curve.get_color() for curve in drawn}) == 2
    legends = [[t.get_text() for t in part.get_texts()] for part in axes.get_children() if isinstance(part, Legend)]
    assert sorted(legends) == [["lstm", "transformer"], ["training", "cold validation", "warm validation"]]

    assert "at the end" in ends.get_xlabel()
    shown = {}
    for line in ends.get_lines():
        model = [label.get_text() for label in ends.get_yticklabels()][int(line.get_ydata()[0])]
        key = "warm_nats_per_character" if line.get_fillstyle() == "none" else "cold_nats_per_character"
        shown[model, key] = list(line.get_xdata())
    keys = ("cold_nats_per_character", "warm_nats_per_character")
    expected = {(m, k): [r[k] for r in rows if r["model"] == m] for m in ("lstm", "transformer") for k in keys}
    assert shown == expected


def test_the_report_has_rows_spread_picture_and_samples(comparison):
    folder, rows, _ = comparison
    report.write(folder, "my text", rows)
    stored = json.loads((folder / "compare.json").read_text(encoding="utf-8"))
    assert stored == [{key: value for key, value in row.items() if key != "sample"} for row in rows]
    page = (folder / "compare.md").read_text(encoding="utf-8")
    assert page.startswith("# my text: lstm, transformer\n")
    assert report.table(rows) in page
    assert report.spread(rows) in page
    assert "](loss_curves.png)" in page
    assert page.count("    To be,\n      or not") == len(rows)  # its spaces kept
    assert (folder / "loss_curves.png").read_bytes().startswith(b"\x89PNG")
