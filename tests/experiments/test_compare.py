import dataclasses
import json
import math
import os
import shutil
import time

import numpy as np
import pytest
from safetensors.numpy import load_file

from experiments.common.jobs import changed_options
from experiments.compare import __main__ as compare
from experiments.compare.budgets import Budget
from experiments.compare.recall import TASK, RecallSettings, recall_results, recall_runs
from experiments.compare.settings import CompareConfig
from experiments.recall import RecallConfig
from keras_seq.commands.options import replaced
from keras_seq.data import load_corpus
from keras_seq.models import MODELS, TransformerConfig
from keras_seq.runs.finished_run import write_living_page
from keras_seq.runs.folders import dataclass_from_dict
from keras_seq.runs.texts import SplitCorpus
from keras_seq.tokenizers import CharacterTokenizer
from keras_seq.training import read_metrics, run_folder, trainer, validation_sample
from keras_seq.training.run_config import read_config
from tests.experiments.discovery import COMPARED

FILES = "config.json", "tokenizer.json", "metrics.jsonl", "model.keras", "result.json", "val_token_losses.npy"
KEYS = {
    *("model", "seed", "parameters", "train_tokens", "train_seconds", "tokens_per_second"),
    *("val_loss_per_character", "val_sequence_length", "val_loss_per_character_streaming", "val_bits_per_character"),
}


def test_it_leaves_a_whole_folder_for_every_model(smoke):
    assert {path.name for path in smoke.folder.iterdir() if path.is_dir()} == {"recall"} | {
        f"{name}-seed0" for name in COMPARED
    }
    for name in COMPARED:
        run = smoke.folder / f"{name}-seed0"
        for part in FILES:
            assert (run / part).stat().st_size > 0
        assert list(run.glob("events.out.tfevents.*"))
        checkpoints = sorted(path.name for path in (run / "checkpoints").glob("step-*"))
        assert checkpoints == ["step-00000020.safetensors"]
        best, last = (run / "checkpoints" / name for name in ("best.safetensors", checkpoints[0]))
        assert best.samefile(last) == (best.read_bytes() == last.read_bytes())  # no second copy
    assert not list(smoke.folder.rglob("*partial*"))


def test_the_first_two_models_live_in_a_page_and_each_of_them_can(smoke, tmp_path):
    page = (smoke.folder / "page.html").read_text(encoding="utf-8")
    assert page.count('class="weights"') == 2
    assert f"open in a browser:\n    {smoke.folder / 'page.html'}\n" in smoke.stdout
    for row in smoke.rows:
        path = tmp_path / f"{row['model']}.html"
        write_living_page([smoke.folder / f"{row['model']}-seed0"], path)
        assert 30_000 < path.stat().st_size < 5_000_000


def test_the_rows_are_of_the_same_budget_and_agree_with_the_runs(smoke):
    assert [row["model"] for row in smoke.rows] == [*COMPARED]
    assert len({(row["train_tokens"], row["val_sequence_length"], row["seed"]) for row in smoke.rows}) == 1
    text, (_, validation) = load_corpus("pydoc").text, load_corpus("pydoc").split()
    tokenizer = CharacterTokenizer.from_text(text)
    ids = tokenizer.encode(validation)
    for row in smoke.rows:
        assert row.keys() >= KEYS
        assert row["train_tokens"] == 20 * 4 * 32
        assert row["tokens_per_second"] == pytest.approx(row["train_tokens"] / row["train_seconds"])
        assert row["val_bits_per_character"] == pytest.approx(row["val_loss_per_character"] / math.log(2))
        run = smoke.folder / f"{row['model']}-seed0"
        assert CharacterTokenizer.load(run / "tokenizer.json") == tokenizer  # of the whole corpus
        *_, last = read_metrics(run, "validation")
        losses = np.load(run / "val_token_losses.npy")
        assert row["val_loss_per_character"] == pytest.approx(losses.mean(), rel=1e-5)
        # a point of the curve is of a sample of the windows
        sample = validation_sample(ids, row["val_sequence_length"], CompareConfig().train)
        chosen = sample.window_starts // row["val_sequence_length"]
        assert last["val_loss_sample"] == pytest.approx(losses[chosen].mean(), rel=1e-5)
        # and says what the result says
        assert abs(last["val_loss_sample"] - row["val_loss"]) < 3 * sample.standard_error(losses)
        named = {key: value for key, value in row.items() if key not in ("model", "seed", "train_flops")}
        assert json.loads((run / "result.json").read_text(encoding="utf-8")).items() >= named.items()


def test_the_losses_by_window_and_position_add_up_to_the_score(smoke):
    for row in smoke.rows:
        losses = np.load(smoke.folder / f"{row['model']}-seed0/val_token_losses.npy")
        assert losses.shape[1] == row["val_sequence_length"] == len(row["val_loss_by_position"]) == 32
        assert losses.mean(dtype="float64") == pytest.approx(row["val_loss"], rel=1e-9)
        assert losses.mean(axis=0, dtype="float64") == pytest.approx(row["val_loss_by_position"], rel=1e-6)


def test_perplexities_are_of_the_same_losses(smoke):
    text = load_corpus("pydoc")
    _, validation = text.split(min_length=33)
    for row in smoke.rows:
        assert row["val_perplexity"] == pytest.approx(math.exp(row["val_loss"]))
        total = row["val_loss_per_character_streaming"] * len(validation)
        assert row["val_word_perplexity_streaming"] == pytest.approx(math.exp(total / len(validation.split())))


def test_the_smallest_training_of_models_of_every_kind_learns(smoke):
    for row in smoke.rows:
        run = smoke.folder / f"{row['model']}-seed0"
        first, *_, last = read_metrics(run, "train")
        assert last["loss"] < first["loss"]
        # better than knowing nothing but the vocabulary
        assert max(row["val_loss_per_character"], row["val_loss_per_character_streaming"]) < math.log(103), row
        windows = "random" if row["model"] in ("hybrid", "transformer") else "stateful"
        assert read_config(run)["windows"] == windows


def test_the_curve_has_a_line_for_every_interval_and_validation(smoke):
    for name in COMPARED:
        lines = read_metrics(smoke.folder / f"{name}-seed0")
        steps = {split: [line["step"] for line in lines if line["split"] == split] for split in ("train", "validation")}
        assert steps == {"train": [5, 10, 15, 20], "validation": [10, 20]}
        assert all(line["tokens"] == line["step"] * 4 * 32 for line in lines)


def test_the_config_makes_the_same_comparison_again(smoke):
    for name in COMPARED:
        config = json.loads((smoke.folder / f"{name}-seed0/config.json").read_text(encoding="utf-8"))
        experiment = dataclass_from_dict(compare.CompareConfig, config["experiment"])
        assert json.loads(json.dumps(dataclasses.asdict(experiment))) == config["experiment"]
        assert {"name": name, **dataclasses.asdict(experiment.model(name))} == config["model"]
        assert config["corpus"]["name"] == "pydoc"
        assert config["budget"]["match"] == "tokens"
        assert config["budget"]["steps"] == experiment.steps == 20
        assert len(config["corpus"]["sha256"]) == 64
        assert {"keras_seq", "keras", "tensorflow", "python", "commit"} <= config["versions"].keys()


@pytest.mark.slow
def test_to_resume_what_is_half_done_in_another_process_ends_at_the_same_figures(smoke, copied, monkeypatch):
    def kill(run, result):
        raise KeyboardInterrupt

    folder = copied(smoke.folder, "half")
    run = folder / "lstm-seed0"
    shutil.rmtree(run)
    with monkeypatch.context() as patch:
        patch.setattr(trainer, "write_result", kill)  # the older checkpoints go after it
        with pytest.raises((KeyboardInterrupt, SystemExit)):
            compare.main(["--resume", str(folder)])
    for part in ("model.keras", *(f"checkpoints/{name}" for name in ("latest", "best.safetensors"))):
        (run / part).unlink()
    (run / "checkpoints/step-00000020.safetensors").unlink()
    assert [path.name for path in (run / "checkpoints").iterdir()] == ["step-00000010.safetensors"]
    for part in ("compare.json", "compare.md", "loss_curves.png"):
        (folder / part).unlink()
    compare.main(["--resume", str(folder)])
    clocks = {"train_seconds", "other_seconds", "tokens_per_second", "seconds"}
    rows = json.loads((folder / "compare.json").read_text(encoding="utf-8"))["rows"]
    for row, expected in zip(rows, smoke.rows, strict=True):
        assert {k: v for k, v in row.items() if k not in clocks} == {
            k: v for k, v in expected.items() if k not in clocks
        }
    for line, expected in zip(read_metrics(run), read_metrics(smoke.folder / "lstm-seed0"), strict=True):
        assert {k: v for k, v in line.items() if k not in clocks} == {
            k: v for k, v in expected.items() if k not in clocks
        }


def test_recall_is_beside_the_losses_in_words_table_page_and_picture(smoke):
    recall = json.loads((smoke.folder / "compare.json").read_text(encoding="utf-8"))["recall"]
    assert [row["model"] for row in recall["rows"]] == [*COMPARED]
    for row in recall["rows"]:
        result = run_folder.read_checksummed(smoke.folder / f"recall/{TASK}-{row['model']}-seed0/result.json")
        assert [group["accuracy"] for group in result["groups"]] == [row["accuracy"], row["twice_as_long"]]
        assert [group["length"] for group in result["groups"]] == [4, 8]
        assert result["parameters"] == row["parameters"]
        lines = [line for line in smoke.report.splitlines() if line.startswith(f"| {row['model']} ")]
        assert any(f" {row['accuracy']:.1%} " in line for line in lines)
    assert "](loss_and_recall.png)" in smoke.report
    page = (smoke.folder / "compare.html").read_text(encoding="utf-8")
    assert (
        page.index("<h2>Results</h2>") < page.index("<h2>Loss beside recall</h2>") < page.index("<h2>Final losses</h2>")
    )
    assert "small models of the same kinds recall, after 20 steps" in " ".join(smoke.stdout.split())


def test_a_recall_that_was_stopped_ends_as_one_that_never_was(smoke, copied, monkeypatch):
    def kill(run, result):
        raise KeyboardInterrupt

    folder, name = copied(smoke.folder, "half"), f"recall/{TASK}-transformer-seed0"
    run, whole = folder / name, smoke.folder / name
    shutil.rmtree(run)
    with monkeypatch.context() as patch:
        patch.setattr(trainer, "write_result", kill)
        with pytest.raises(SystemExit):
            compare.main(["--resume", str(folder)])
    for part in ("model.keras", *(f"checkpoints/{name}" for name in ("latest", "best.safetensors"))):
        (run / part).unlink()
    (run / "checkpoints/step-00000020.safetensors").unlink()
    assert [path.name for path in (run / "checkpoints").iterdir()] == ["step-00000010.safetensors"]
    for part in ("compare.json", "compare.md"):
        (folder / part).unlink()
    compare.main(["--resume", str(folder)])
    for part in ("compare.json", "compare.md"):
        assert (folder / part).read_bytes() == (smoke.folder / part).read_bytes()
    tensors = [load_file(path / "checkpoints/step-00000020.safetensors") for path in (run, whole)]
    assert all(np.array_equal(tensors[0][key], value) for key, value in tensors[1].items())


def test_recall_has_the_rows_of_its_own_experiment():
    own, other = RecallSettings.of(CompareConfig()), RecallConfig()
    assert own.task(TASK, seed=3) == other.task(TASK, seed=3)
    assert {*own.test_sizes(TASK)} < {*other.test_sizes(TASK)}


def test_without_steps_nothing_recalls_and_an_older_folder_has_the_default(tmp_path):
    config = CompareConfig(recall_steps=0)
    assert recall_runs(config, tmp_path) == []
    assert recall_results(config, []) is None
    older = dataclasses.asdict(CompareConfig())
    del older["recall_steps"]
    assert dataclass_from_dict(CompareConfig, older) == CompareConfig()


def test_recurrent_models_read_random_windows_if_one_of_them_reads_less_than_the_text():
    ids, config = np.zeros(20 * 12 * 64, "int32"), CompareConfig(tokens=30 * 12 * 64)

    def kind(**steps):
        budgets = {name: Budget(name, MODELS[name](), n, 1, 1, 0.1) for name, n in steps.items()}
        return compare.recurrent_kind(config, ids, budgets)

    assert kind() == kind(lstm=30, transformer=5) == kind(lstm=20, gru=40) == "stateful"
    assert kind(lstm=30, gru=19) == "random"


def test_a_page_is_written_again_for_models_that_were_trained_on(tmp_path, monkeypatch):
    written, run, page = [], tmp_path / "lstm-seed0", tmp_path / "page.html"
    monkeypatch.setattr(compare, "write_living_page", lambda runs, path: (written.append([*runs]), path.touch()))
    run.mkdir()
    for age, pages in ((3, 1), (3, 1), (-5, 2)):  # a new one; nothing new; trained further
        (run / "model.keras").touch()
        os.utime(run / "model.keras", (time.time() - age,) * 2)
        compare._write_page(tmp_path, [run])
        assert written == [[run]] * pages
    assert page.exists()


def test_after_a_sweep_runs_get_no_longer_as_they_would_get_other_rates(tmp_path):
    swept = CompareConfig(sweep="learning-rate", tokens=2000)
    longer = changed_options(tmp_path, swept, dataclasses.replace(swept, tokens=3000))
    with pytest.raises(ValueError, match="--tokens 3000: expected 2000, for which --sweep"), longer:
        pass


def test_a_transformer_of_before_its_gate_and_convolution_stays_what_it_was():
    older = dataclasses.asdict(CompareConfig())
    for name in ("use_output_gate", "use_sinks", "kernel_size"):
        del older["transformer"][name]
    without = TransformerConfig(use_output_gate=False, kernel_size=None)
    assert dataclass_from_dict(CompareConfig, older) == CompareConfig(transformer=without)


@pytest.mark.parametrize(("axis", "devices", "runs"), [("data", 4, 2), ("data", 3, 0), ("model", 2, 0)])
def test_devices_that_cannot_share_the_small_models_train_none(tmp_path, monkeypatch, capsys, axis, devices, runs):
    sizes = {"data": 1, "model": 1, axis: devices}
    monkeypatch.setattr("keras_seq.training.distributed.mesh_size", sizes.get)
    config = CompareConfig(models=("lstm", "gru"))
    assert len(recall_runs(config, tmp_path)) == runs
    assert ("No recall: the devices" in capsys.readouterr().out) == (runs == 0)


def test_a_number_of_recall_steps_that_cannot_be_is_refused(refuses):
    refuses("compare", "--recall-steps -1", "--recall-steps -1: expected at least 0")


def test_of_a_recall_that_diverges_the_others_are_reported():
    config = CompareConfig(models=("lstm", "gru"))
    groups = [{"accuracy": 0.25}, {"accuracy": 0.125}]
    recall = recall_results(config, [{"diverged": "The loss is nan."}, {"parameters": 9, "groups": groups}])
    assert recall.means == {"gru": 0.25}
    assert recall.accuracies("lstm") == []
    assert recall.beside_loss("lstm").endswith(": gru 25.0%, lstm diverged; a guess 15.2%.")


@pytest.mark.rare
def test_a_mistake_ends_the_process_with_2_and_nothing_but_its_sentence(python, tmp_path):
    process = python("-m", "experiments.compare", "--corpus", "/nonexistent", "--log-dir", tmp_path / "logs")
    assert (process.returncode, process.stdout) == (2, "")
    assert process.stderr.startswith("experiments.compare: The file '/nonexistent' does not exist")
    assert process.stderr.count("\n") == 1


def test_help_is_no_mistake(capsys):
    with pytest.raises(SystemExit) as stop:
        compare.main(["--help"])
    output = capsys.readouterr()
    assert (stop.value.code, output.err) == (0, "")
    assert "--transformer.num-heads" in output.out


def test_after_import_keras_seq_alone_a_process_can_load_the_models(smoke, python):
    paths = [smoke.folder / f"{name}-seed0/model.keras" for name in COMPARED]
    code = "import sys, keras, keras_seq; print(*(keras.models.load_model(p).count_params() for p in sys.argv[1:]))"
    process = python("-c", code, *paths)
    assert process.stdout.split() == [str(row["parameters"]) for row in smoke.rows], process.stderr


def test_to_resume_with_another_text_is_refused(smoke, copied, fails):
    folder = copied(smoke.folder, "other")
    for path in folder.glob("*/config.json"):
        config = run_folder.read_checksummed(path)
        config["corpus"]["sha256"] = "0" * 64
        run_folder.write_checksummed(path, config)
    assert "resume with the same text" in fails(compare.main, "--resume", folder)


def test_embeddings_are_written_also_where_no_step_was_left(tmp_path, monkeypatch):
    corpus = tmp_path / "text.txt"
    corpus.write_text("ab\n" * 200, encoding="utf-8")
    config = replaced(compare.CompareConfig(corpus=str(corpus), models=("lstm",)), compare.SMOKE)
    data, run = SplitCorpus(config.corpus, tmp_path), tmp_path / "lstm-seed0"
    budget = compare.compare_budgets.plan(config, tmp_path, data.tokenizer.vocabulary_size, None)["lstm"]
    monkeypatch.setattr(compare.training, "train_language_model", lambda *arguments, **options: {})
    compare.train_one(run, config, budget, config.train, 0, data, data.train, data.validation_text)
    lines = (run / "embedding.tsv").read_text(encoding="utf-8").splitlines()
    assert len(lines) == data.tokenizer.vocabulary_size
    assert (run / "projector_config.pbtxt").exists()
