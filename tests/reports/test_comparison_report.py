import dataclasses
import html.parser
import json

import matplotlib.pyplot as plt
import numpy as np
import pytest
from matplotlib.legend import Legend

from keras_seq.baselines import Baseline
from keras_seq.evaluation.score import paired_difference
from keras_seq.reports import comparison_report as report
from keras_seq.reports.comparison import CURVES, ComparisonResults, Recall
from keras_seq.reports.comparison_report import comparison_html
from keras_seq.reports.tables import Table
from keras_seq.training import run_folder

LENGTH, WINDOWS, SEEDS = 4, 60, 2
HOSTILE = '</script><script>alert("1")</script>\n  <b onclick=x>&amp; `${y}`'
MODELS = "lstm", "transformer"


def make_row(run, model, seed, losses):
    val_loss = float(losses.mean())
    return {
        **{"run": run, "model": model, "seed": seed, "parameters": 1000, "train_tokens": 300},
        **{"flops_per_token": 3000, "train_flops": 9e5},
        **{
            "train_seconds": 3.0,
            "tokens_per_second": 100.0,
            "characters_per_token": 1.0,
            "val_sequence_length": LENGTH,
        },
        **{
            "train_loss_per_character": 1.25,
            "val_loss_per_character": val_loss,
            "val_loss_per_character_streaming": val_loss - 0.1,
        },
        **{
            "val_bits_per_character": val_loss / np.log(2),
            "val_bits_per_character_streaming": (val_loss - 0.1) / np.log(2),
        },
        **{"val_perplexity": np.exp(val_loss), "val_word_perplexity": None},
        **{"val_loss_by_position": losses.mean(axis=0).tolist(), "sample": f"{model} {HOSTILE}"},
    }


@pytest.fixture
def results(tmp_path):
    """Two models with two seeds each, whose files are made up."""
    random, rows = np.random.default_rng(0), []
    for n, model in enumerate(MODELS):
        for seed in range(SEEDS):
            run = tmp_path / f"{model}-seed{seed}"
            run.mkdir()
            losses = random.normal(2.0 + 0.2 * n, 0.1, size=(WINDOWS, LENGTH))
            np.save(run / "val_token_losses.npy", losses.astype("float32"))
            lines = [
                {"tokens": 100 * k, "split": "train", "seconds": float(k), "loss": 4.0 - k / 2 - seed}
                for k in (1, 2, 3)
            ]
            lines += [
                {"tokens": t, "split": "validation", "val_loss": 3.5 + n + seed, "val_loss_streaming": 3.25 + n}
                for t in (150, 300)
            ]
            (run / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
            run_folder.write_checksummed(run / "config.json", {"versions": {"keras": "<3>"}})
            rows.append(make_row(run, model, seed, losses))
    baselines = (Baseline("unigram", 9.0), Baseline("2-gram", 3.4), Baseline("xz", 3.0))
    options = {"corpus": f"my {HOSTILE}.txt"}
    return ComparisonResults(tmp_path, f"my {HOSTILE}.txt", f"Of {HOSTILE}.", rows, baselines, options=options)


def test_a_curve_has_the_points_that_all_seeds_have(results):
    """One seed was trained to 250 tokens first, and has a point there; another ended at 200."""
    run = results.rows[0]["run"]
    lines = (run / "metrics.jsonl").read_text().splitlines()
    lines.insert(2, json.dumps({"tokens": 250, "split": "train", "seconds": 2.5, "loss": 9.0}))
    (run / "metrics.jsonl").write_text("\n".join(lines))
    assert results.curve("lstm", "train loss")["tokens"] == [100, 200, 300]
    assert results.curve("lstm", "train loss")["mean"] == [3.0, 2.5, 2.0]  # seeds 0 and 1: 3.5 and 2.5 at first
    other = results.rows[3]["run"] / "metrics.jsonl"
    other.write_text("".join(line + "\n" for line in other.read_text().splitlines() if '"tokens": 300' not in line))
    assert results.curve("transformer", "train loss")["tokens"] == [100, 200]


def test_the_note_on_the_text_is_in_the_report_and_on_the_page(results):
    for note, times in (("13% of it <is> copied.", 1), (None, 0)):
        annotated = dataclasses.replace(results, note=note)
        assert [*map(str, report.details(annotated))].count("13% of it <is> copied.") == times
        assert comparison_html(annotated).count("<p>13% of it &lt;is&gt; copied.</p>") == times


def test_a_curve_is_the_mean_over_the_seeds_with_its_extremes_and_its_time(results):
    assert results.curve("lstm", "train loss") == {
        **{"tokens": [100, 200, 300], "seconds": [1.0, 2.0, 3.0]},
        **{"mean": [3.0, 2.5, 2.0], "low": [2.5, 2.0, 1.5], "high": [3.5, 3.0, 2.5]},
    }
    curve = results.curve("transformer", "val_loss")
    assert curve["seconds"] == [1.5, 3.0]  # between two points of the training curve
    assert (curve["mean"], curve["low"], curve["high"]) == ([5.0, 5.0], [4.5, 4.5], [5.5, 5.5])
    assert results.curve("transformer", "val_loss_streaming")["mean"] == [4.25, 4.25]


def test_differences_are_those_of_the_windows_and_positions_those_of_the_rows(results):
    first, second = (
        np.stack(
            [
                np.load(results.folder / f"{m}-seed{s}/val_token_losses.npy").mean(axis=1, dtype="float64")
                for s in (0, 1)
            ]
        )
        for m in MODELS
    )
    assert results.differences == {"transformer": paired_difference(first, second)}
    assert results.differences["transformer"].mean == pytest.approx(0.2, abs=0.03)
    expected = np.mean([row["val_loss_by_position"] for row in results.for_model("lstm")], axis=0)
    assert results.by_position("lstm") == pytest.approx(expected.tolist())


def plotted(results, monkeypatch):
    monkeypatch.setattr(plt, "close", lambda figure: None)
    report.plot(results)
    axes = plt.gcf().axes
    monkeypatch.undo()
    plt.close("all")
    return axes


def test_the_plot_shows_every_point_with_bands_in_one_color_a_model(results, monkeypatch):
    axes, ends = plotted(results, monkeypatch)
    curves = axes.get_lines()[: 3 * len(MODELS)]
    for n, model in enumerate(MODELS):
        model_curves = curves[3 * n : 3 * n + 3]
        for line, name in zip(model_curves, CURVES, strict=True):
            curve = results.curve(model, name)
            assert list(map(tuple, line.get_xydata())) == list(zip(curve["tokens"], curve["mean"], strict=True))
        assert len({line.get_color() for line in model_curves}) == 1
        assert model_curves[0].get_alpha() < 1
    assert len({line.get_color() for line in curves}) == len(MODELS)
    assert len(axes.collections) == 3 * len(MODELS)  # the bands
    heights = {vertex[1] for vertex in axes.collections[0].get_paths()[0].vertices}
    assert heights == {1.5, 2.0, 2.5, 3.0, 3.5}  # from the lower seed to the higher one
    legends = [[t.get_text() for t in part.get_texts()] for part in axes.get_children() if isinstance(part, Legend)]
    assert legends == [["lstm", "transformer", "train loss", "val_loss", "val_loss_streaming"]]
    shown = {}
    for line in ends.get_lines()[: 2 * len(MODELS)]:
        model = [label.get_text() for label in ends.get_yticklabels()][int(line.get_ydata()[0]) + 3]
        key = "val_loss_per_character_streaming" if line.get_fillstyle() == "none" else "val_loss_per_character"
        shown[model, key] = list(line.get_xdata())
    keys = ("val_loss_per_character", "val_loss_per_character_streaming")
    assert shown == {(m, k): [r[k] for r in results.for_model(m)] for m in MODELS for k in keys}


def test_baselines_are_lines_or_named_as_off_the_scale(results, monkeypatch):
    axes, ends = plotted(results, monkeypatch)
    assert {line.get_ydata()[0] for line in axes.get_lines()[3 * len(MODELS) :]} == {3.4, 3.0}
    assert {"2-gram", "xz"} <= {text.get_text() for text in axes.texts}
    assert axes.get_title(loc="right").endswith("off the scale: unigram 9.00")
    assert [line.get_xdata()[0] for line in ends.get_lines()[-4:-1]] == [3.0, 3.4, 9.0]


def test_one_seed_has_no_bands_and_an_interval_of_the_text_alone(results, monkeypatch):
    one = dataclasses.replace(results, rows=[row for row in results.rows if row["seed"] == 0])
    assert not plotted(one, monkeypatch)[0].collections
    assert any("over the text only" in str(part) for part in report.details(one))
    assert "±" in str(report.results_table(results))
    assert "±" not in str(report.results_table(one))


def test_of_unequal_numbers_of_seeds_the_words_are_those_of_several(results, monkeypatch):
    rows = [*results.for_model("lstm"), *results.for_model("transformer")[:1]]
    unequal = dataclasses.replace(results, rows=rows)
    assert "for text and seeds like these" in unequal.verdict
    assert not any("over the text only" in str(part) for part in report.details(unequal))
    assert "seeds each" not in plotted(unequal, monkeypatch)[0].figure.get_suptitle()


def test_a_validation_before_the_first_logged_step_has_its_time(results):
    run = results.rows[0]["run"]
    early = {"tokens": 50, "split": "validation", "val_loss": 9.0, "val_loss_streaming": 9.0}
    (run / "metrics.jsonl").write_text(json.dumps(early) + "\n" + (run / "metrics.jsonl").read_text())
    one = dataclasses.replace(results, rows=results.rows[:1])
    seconds = one.curve("lstm", "val_loss")["seconds"]
    assert seconds[0] == pytest.approx(one.curve("lstm", "train loss")["seconds"][0] / 2)


def test_the_verdict_says_what_is_best_by_how_much_and_how_certain_that_is(results):
    assert results.verdict.startswith("lstm has the lowest val_loss, 1.998 nats")
    assert "transformer has 2.195, 0.1975 more (95 % interval +0." in results.verdict
    assert "): more than chance for text and seeds like these. The best model is below the best" in results.verdict
    start_to_end = "baseline: reading the text from start to end, lstm has 1.898 (val_loss_streaming), xz 3.000."
    assert results.verdict.endswith(start_to_end)
    one = dataclasses.replace(results, rows=[row for row in results.rows if row["seed"] == 0])
    assert "more than chance on this text; with one seed each, other seeds may differ by more." in one.verdict
    alone = dataclasses.replace(results, rows=results.for_model("transformer"))
    assert alone.verdict.startswith("transformer has a val_loss of 2.19")
    assert "nats per character. It is below the best baseline: reading" in alone.verdict
    assert "times" not in report.column_notes(alone.rows[:1])
    assert "more parameters" not in report.column_notes(alone.rows[:1])


def test_a_compressor_is_compared_with_the_loss_that_has_all_text_before_too(results):
    rows = [{**row, "val_loss_per_character": 3.2, "val_loss_per_character_streaming": 2.9} for row in results.rows]
    verdict = dataclasses.replace(results, rows=rows).verdict
    assert "The best model is below the best baseline" in verdict  # xz has 3.0


def test_curves_and_baselines_of_a_picture_are_of_the_same_text(results, monkeypatch):
    baselines = tuple(
        Baseline(b.name, b.loss_per_character, None if b.name == "xz" else b.loss_per_character - 0.15)
        for b in results.baselines
    )
    scored = "40 characters spread over 400"
    sampled = dataclasses.replace(results, baselines=baselines, scored=scored)
    axes, ends = plotted(sampled, monkeypatch)
    assert {line.get_ydata()[0] for line in axes.get_lines()[3 * len(MODELS) :]} == {3.25}
    assert scored in axes.get_xlabel()
    assert [label.get_text() for label in ends.get_yticklabels()][:3] == [
        "unigram",
        "2-gram",
        "xz",
    ]  # of all of the text
    assert "3.000" in {text.get_text() for text in ends.texts}
    page = comparison_html(sampled)
    assert json.loads(Reader(page).data)["baselines"][1] == {"name": "2-gram", "loss": 3.25}
    assert page.index('<div class="finals">') < page.index("xz</span>") < page.index("Loss during training")
    assert scored in page
    assert "| xz" in str(report.baselines_table(sampled))
    assert "3.000" in str(report.baselines_table(sampled))


def test_curves_of_a_sample_are_found_by_its_name(results):
    names = ("val_loss", "val_loss_streaming")
    expected = [results.curve("lstm", name) for name in names]
    for path in results.folder.glob("lstm-*/metrics.jsonl"):
        text = path.read_text(encoding="utf-8")
        for name in names:
            text = text.replace(f'"{name}"', f'"{name}_sample"')
        path.write_text(text, encoding="utf-8")
    assert [dataclasses.replace(results).curve("lstm", name) for name in names] == expected


def test_the_report_has_rows_differences_baselines_plot_and_samples(results):
    written = report.compare_report(results)
    written.write(results.folder, "compare")
    stored = json.loads((results.folder / "compare.json").read_text(encoding="utf-8"))
    own = ("sample", "run", "flops_per_token")
    assert stored["rows"] == [{key: value for key, value in row.items() if key not in own} for row in results.rows]
    assert stored["baselines"] == {"unigram": 9.0, "2-gram": 3.4, "xz": 3.0}
    assert stored["differences"]["transformer"] == dataclasses.asdict(results.differences["transformer"])
    page = (results.folder / "compare.md").read_text(encoding="utf-8")
    assert str(report.results_table(results)) in page
    assert "](loss_curves.png)" in page
    assert "| 2-gram | 3.400 | 4.905 |" in " ".join(page.split())
    assert (results.folder / "loss_curves.png").read_bytes().startswith(b"\x89PNG")
    assert (results.folder / "compare.html").stat().st_size > 10_000
    assert "compare.html" in written.message(results.folder)


def recalled(results, **accuracies):
    """The results with what each model recalls: accuracies by seed, the half of them at twice the length."""
    rows = [
        {"model": model, "seed": seed} | ({"parameters": 500, "accuracy": a, "twice_as_long": a / 2} if a else {})
        for model, values in accuracies.items()
        for seed, a in enumerate(values)
    ]
    return dataclasses.replace(results, recall=Recall(8, 16, 300, 0.15, rows))


@pytest.mark.parametrize(
    ("lstm", "transformer", "finding"),
    [
        ((0.2, 0.1), (1.0, 0.9), "Loss and recall differ: lstm has the lowest loss, and transformer recalls more."),
        ((0.2, 0.1), (0.18, 0.12), "No model has learned to recall in these steps."),
        ((1.0, 0.98), (0.2, 0.1), "lstm recalls most, too."),
        ((0.98, 0.98), (1.0, 1.0), "lstm recalls no less than the others."),
        ((1.0, 0.98), (None, None), "lstm has learned to recall."),
    ],
)
def test_the_verdict_says_whether_loss_and_recall_agree(results, lstm, transformer, finding):
    verdict = recalled(results, lstm=lstm, transformer=transformer).verdict
    assert verdict.startswith(results.verdict)
    assert verdict[len(results.verdict) :].startswith(
        f" {finding} Of 8 pairs, small models of the same kinds recall, a"
    )
    assert verdict.endswith("; a guess 15.0%.")
    for name, values in (("lstm", lstm), ("transformer", transformer)):
        assert f"{name} diverged" in verdict if None in values else f"{name} {sum(values) / 2:.1%}" in verdict


def test_where_losses_are_equal_by_chance_recall_tells_the_models_apart(results):
    recall = recalled(results, lstm=(0.2, 0.1), transformer=(1.0, 0.9)).recall
    assert recall.beside_loss("lstm", "transformer").startswith(
        "The losses do not tell lstm and transformer apart, but recall does."
    )
    recall = recalled(results, lstm=(0.2, 0.1), transformer=(0.18, 0.12)).recall
    assert recall.beside_loss("lstm", "transformer").startswith("No model has learned to recall")


def test_recall_is_a_table_a_plot_and_a_part_of_the_page(results):
    more = recalled(results, lstm=(None, None), transformer=(1.0, 0.9))
    assert report.recall_table(more).rows == [
        ["lstm", "1.998", *["diverged"] * 4],
        ["transformer", "2.195", "95.0% ± 7.1%", "47.5% ± 3.5%", "yes", "500"],
    ]
    written = report.compare_report(more)
    assert (results.folder / "loss_and_recall.png").read_bytes().startswith(b"\x89PNG")
    assert written.data["recall"]["rows"] == more.recall.rows
    page = Reader((results.folder / "compare.html").read_text(encoding="utf-8")).text
    section = page[page.index("Loss beside recall") : page.index("Final losses")]
    assert all(cell in section for row in report.recall_table(more).rows for cell in row if "±" not in cell)
    assert "95.0%" in section
    assert "Loss beside recall" not in comparison_html(results)


class Reader(html.parser.HTMLParser):
    """The tags of a page, the text outside of scripts and styles, and the JSON inside."""

    def __init__(self, page):
        super().__init__()
        self.tags, self.text, self.data, self.within = [], "", "", None
        self.feed(page)

    def handle_starttag(self, tag, attributes):
        self.tags.append(tag)
        self.within = dict(attributes).get("id", tag)

    def handle_endtag(self, tag):
        self.within = None

    def handle_data(self, data):
        if self.within == "data":
            self.data += data
        elif self.within not in ("script", "style"):
            self.text += data


def test_no_character_of_corpus_or_sample_is_markup(results):
    tame = dataclasses.replace(
        results,
        corpus="tame",
        introduction="tame",
        options={"corpus": "tame"},
        rows=[{**row, "sample": "tame"} for row in results.rows],
    )
    page, plain = Reader(comparison_html(results)), Reader(comparison_html(tame))
    assert page.tags == plain.tags
    assert page.text.count(HOSTILE) >= len(MODELS) + 2  # title, every sample, and the name of the corpus
    assert "keras <3>" in page.text


def test_the_page_needs_no_network_and_its_data_are_the_curves(results):
    page = comparison_html(results)
    assert '<p class="verdict">lstm has the lowest' in page
    assert "http://" not in page.replace("http://www.w3.org/2000/svg", "")
    assert "https://" not in page
    assert "src=" not in page
    data = json.loads(Reader(page).data)
    assert [model["name"] for model in data["models"]] == list(MODELS)
    assert data["models"][0]["curves"]["train loss"] == results.curve("lstm", "train loss")
    assert data["models"][1]["positions"] == pytest.approx(results.by_position("transformer"), abs=1e-4)
    assert data["baselines"][1] == {"name": "2-gram", "loss": 3.4}


def test_further_tables_are_in_the_report_and_on_the_page(results):
    table = Table(["rate", "loss"], [["0.01", "1.500"]])
    more = dataclasses.replace(results, tables={"Learning rates": (table, "It <is> the smallest.")})
    text = "\n".join(map(str, report.details(more)))
    assert f"Learning rates:\n{table}\nIt <is> the smallest." in text
    page = Reader(comparison_html(more)).text
    assert page.index("Learning rates") < page.index("1.500") < page.index("It <is> the smallest.")


CLICKS = """
const click = node => node.dispatchEvent(new Event("click", {bubbles: true}));
const count = () => document.querySelectorAll("#curves .curve").length;
const said = [count()];
click(document.querySelector(".legend button"));
said.push(count());
const svg = document.querySelector("#positions svg"), at = svg.getBoundingClientRect();
svg.dispatchEvent(new PointerEvent("pointermove", {clientX: at.right - 9, clientY: at.top + 50, bubbles: true}));
said.push(document.querySelector("#positions .tooltip").textContent);
const boxes = [...document.querySelectorAll("#curves .label")].map(label => label.getBoundingClientRect());
said.push(boxes.some((a, n) => boxes.some((b, m) => n < m && a.top + 2 < b.bottom && b.top + 2 < a.bottom)));
said.push(boxes.length, document.documentElement.scrollWidth <= innerWidth);
document.title = JSON.stringify(said);
"""


@pytest.mark.parametrize("width", [500, 1280])
def test_in_a_browser_curves_toggle_points_tell_their_values_and_no_labels_collide(results, browse, width):
    curves, fewer, tooltip, overlap, labels, fits = browse(comparison_html(results), CLICKS, width)
    assert (curves, fewer) == (3 * len(MODELS), 3)
    assert tooltip.endswith(f"transformer{results.by_position('transformer')[-1]:.3f}")
    assert (overlap, labels, fits) == (False, 1 + 2, True)  # a model and the baselines on the scale
