"""`keras_seq.report` and `load_run`: the same numbers as a comparison's, and no comparison of what differs."""

import html
import json
import re
import shutil

import pytest

from keras_seq.commands import report as command
from keras_seq.runs import load_run, report
from keras_seq.training import load_result, write_result
from keras_seq.training.run_config import read_config
from keras_seq.training.run_folder import write_checksummed


@pytest.fixture
def changed(trained, tmp_path):
    """Copy a run into a folder, with another config or result."""

    def changed(name="copy", config=None, result=None):
        run = tmp_path / name
        shutil.copytree(trained().folder, run)
        write_checksummed(run / "config.json", {**read_config(run), **(config or {})})
        write_result(run, {**load_result(run), **(result or {})})
        return run

    return changed


def test_it_compares_runs_in_words_numbers_and_a_page(trained, tmp_path):
    runs = trained("lstm"), trained("gru")
    written = report(runs, tmp_path / "report")
    assert {path.name for path in written.folder.iterdir()} == {
        *("compare.html", "compare.md", "compare.json", "loss_curves.png")
    }
    assert written.differences.keys() == {"gru"}
    gap = runs[1].result["val_loss_per_character"] - runs[0].result["val_loss_per_character"]
    assert written.differences["gru"].mean == pytest.approx(gap, abs=1e-5)
    assert re.match("(lstm|gru) has the lowest val_loss", written.verdict)
    assert str(written).startswith(f"{written.verdict}\n\n| model ")
    page = re.search('srcdoc="(.*)"', written._repr_html_(), re.DOTALL)[1]
    assert "<" not in page
    assert html.unescape(page) == (written.folder / "compare.html").read_text(encoding="utf-8")
    folders = [run.folder for run in runs]
    assert report(folders).differences == written.differences


def test_the_report_of_a_comparison_is_not_replaced(changed, tmp_path):
    run = changed()
    (tmp_path / "compare.json").write_text("{}")
    with pytest.raises(ValueError, match="has the comparison of its runs; expected another folder"):
        report(run, tmp_path)


def test_one_run_is_described(trained):
    written = report([trained()])
    assert (
        written.verdict
        == f"lstm has a val_loss of {trained().result['val_loss_per_character']:.3f} nats per character."
    )
    assert written.differences == {}
    assert report(trained()).verdict == report(str(trained().folder)).verdict == written.verdict
    with pytest.raises(ValueError, match=r"/config\.json' is a file; expected a folder"):
        report(trained(), trained().folder / "config.json")


def test_seeds_are_one_model_and_other_settings_of_a_model_have_the_names_of_their_folders(trained, changed):
    run = trained().folder
    assert report([run, changed("seed", {"seed": 1})]).results.num_seeds == 2
    other = changed("other", {"windows": "random"})
    assert report([run, other]).results.models == ["lstm", "other"]  # the folder is named lstm too
    same_name = changed("x/lstm", {"windows": "random"})
    assert report([run, same_name]).results.models == [f"{run.parent.name}/lstm", "x/lstm"]
    wide = changed("wide", {"seed": 1, "architecture": {"units": 64}})
    assert report([run, wide]).results.models == ["lstm", "wide"]
    assert report([run, changed("twice")]).results.models == ["lstm", "twice"]  # the same seed is no other one
    seeds = changed("lstm-seed0", {"windows": "random"}), changed("lstm-seed1", {"windows": "packed"})
    assert report(seeds).results.models == ["lstm-seed0", "lstm-seed1"]
    long = "20260101-120000-a-long-name-of-a-text-and-3-more-transformer"
    assert report([run, changed(long, {"windows": "random"})]).results.models == ["lstm", long]


@pytest.mark.parametrize(
    ("config", "result"),
    [
        ({"validation": {"sha256": "ab", "characters": 9, "sequence_length": 12}}, {}),
        ({"tokenizer": {"kind": "bpe", "digest": "ab"}}, {}),
        ({}, {"val_sequence_length": 13}),
    ],
)
def test_losses_of_other_characters_are_not_compared(trained, changed, config, result):
    run, other = trained().folder, changed("other", config, result)
    with pytest.raises(ValueError, match=f"^{run} and {other} were validated on other texts, by other tokenizers"):
        report([run, other])


def test_a_sample_is_noted_also_where_only_another_run_has_it(trained, changed):
    run, other = trained().folder, changed("other", {"windows": "random"})
    lines = (other / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    assert not any("_sample" in line for line in lines)
    sampled = lines[-1].replace('"val_loss"', '"val_loss_sample"').replace("_streaming", "_streaming_sample")
    (other / "metrics.jsonl").write_text("\n".join([*lines, sampled]) + "\n", encoding="utf-8")
    config = read_config(other)
    sample = {**config, "train": {**config["train"], "validation_characters": 20}}
    write_checksummed(other / "config.json", sample)
    total = config["validation"]["characters"]
    assert report([run, other]).results.scored == f"all of the text; 20 characters spread over {total:,}"


def test_a_folder_that_is_no_finished_run_is_refused_with_what_to_name(trained, changed, tmp_path, fails):
    (tmp_path / "runs/a").mkdir(parents=True)
    unfinished = changed("unfinished")
    for name in ("model.keras", "result.json"):
        (unfinished / name).unlink()
    whole, torn = changed("runs/b"), changed("torn")
    (torn / "val_token_losses.npy").write_bytes(b"torn")
    for path, words in {
        tmp_path / "nowhere": "nowhere does not exist; expected the folder of a finished run.",
        whole / "model.keras": f"is a file; expected its folder {whole}.",
        tmp_path / "runs": f"expected the folder of a finished run, such as {whole}.",
        tmp_path / "runs/a": "model.keras is missing; expected the folder of a finished run.",
        torn: f"{torn}: a file of the run is missing or not intact, .* --resume {torn} with what started the run",
        unfinished: f"the run is not finished; .* --resume {unfinished} with what started the run",
    }.items():
        for call in (lambda path=path: report([whole, path]), lambda path=path: load_run(path)):
            with pytest.raises(ValueError, match=words):
                call()
        assert re.search(words, fails(command.main, whole, path, "--out", tmp_path / "out"))
    for runs in ([], [whole, tmp_path / "runs/../runs/b"]):
        with pytest.raises(ValueError, match="expected one or more folders, each once"):
            report(runs)
    assert not (tmp_path / "out").exists()


def test_the_command_reports_the_runs_of_a_comparison_with_equal_differences(smoke, tmp_path, capsys):
    rows = smoke.rows
    runs = [smoke.folder / f"{row['model']}-seed{row['seed']}" for row in rows]
    command.main([*map(str, runs), "--out", str(tmp_path / "report")])
    said = capsys.readouterr().out
    expected, got = (
        json.loads((folder / "compare.json").read_text()) for folder in (smoke.folder, tmp_path / "report")
    )
    assert got["differences"] == expected["differences"]
    for row, other in zip(got["rows"], rows, strict=True):
        assert row == {**other, "train_flops": pytest.approx(other["train_flops"])}
    assert str(tmp_path / "report" / "compare.html") in said
