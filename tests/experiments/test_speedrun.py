import functools
import hashlib
import importlib.util
import io
import json
import os
import pathlib
import statistics
import subprocess
import sys

import keras
import numpy as np
import pytest

from experiments.speedrun import __main__ as study
from experiments.speedrun import attempt, records
from keras_seq.baselines import KneserNeyNGrams
from keras_seq.runs.texts import SplitCorpus

PACKAGE = pathlib.Path(study.__file__).parent


def a_row(seed, loss=1.46, seconds=100.0, gflops=(100.0, 100.0), run=None):
    row = {"seed": seed, "run": run or f"seed{seed}", "val_loss": loss, "parameters": 9}
    row["backend"] = "tensorflow"
    return {**row, "processor_seconds": seconds, "wall_seconds": seconds, "gflops": [*gflops]}


# The rules


def density(x, degrees):
    """Student's t, without its constant."""
    return (1 + x * x / degrees) ** (-(degrees + 1) / 2)


@pytest.mark.parametrize("n", [2, 3, 4, 7, 8])
@pytest.mark.parametrize("shift", [-0.003, 0.002, 0.02])
def test_p_is_the_area_under_the_density_of_t(n, shift):
    losses = records.TARGET - shift + 0.004 * np.random.default_rng(n).standard_normal(n)
    t = (records.TARGET - losses.mean()) / (losses.std(ddof=1) / n**0.5)
    angles = np.linspace(-np.pi / 2, np.pi / 2, 400_002)[1:-1]  # x = tan(angle)
    weights = density(np.tan(angles), n - 1) / np.cos(angles) ** 2
    assert records.p_value(losses.tolist()) == pytest.approx(
        weights[np.tan(angles) > t].sum() / weights.sum(), rel=1e-3
    )


def test_p_of_equal_losses_and_of_one():
    assert records.p_value([1.46, 1.46]) == 0
    assert records.p_value([1.48, 1.48]) == 1
    assert records.p_value([1.0]) == 1


def test_a_machine_of_twice_the_speed_has_the_same_seconds():
    slow, fast = a_row(0, seconds=80, gflops=(60, 60)), a_row(0, seconds=40, gflops=(120, 120))
    assert records.scaled_seconds(slow) == records.scaled_seconds(fast) == pytest.approx(48)


def test_each_rule_has_its_sentence():
    good = [a_row(seed, 1.46 + 0.001 * seed, seconds=99.9 + 0.1 * seed) for seed in range(4)]
    slower = {"seeds": [a_row(seed, seconds=102.0 + seed % 2) for seed in range(4)], "seconds": 102.5}
    assert records.objections(good) == records.objections(good, slower) == []
    assert any(sentence.startswith("2 seeds:") for sentence in records.objections(good[:2]))
    (sentence,) = records.objections([a_row(seed, 1.47 + 0.001 * seed) for seed in range(4)])
    assert "1.4715" in sentence
    (sentence,) = records.objections([*good, a_row(4, gflops=(100, 120))])
    assert sentence.startswith("seed 4: the machine's speed changed by 20%")
    for seconds in (100.0, 99.0, 101.0, 106.0):  # as fast; slower; faster by less than the seeds differ
        standing = {"seeds": [a_row(seed, seconds=seconds + 6 * (seed - 1.5)) for seed in range(4)], "seconds": seconds}
        (sentence,) = records.objections(good, standing)
        assert f"below the {seconds:.1f} s of the last record by chance" in sentence


def test_p_of_being_faster_is_welchs():
    new, old = ([a_row(0, seconds=value) for value in values] for values in ((27, 31, 29.5), (33, 32.5, 35, 34)))
    (m, v, n), (m_old, v_old, n_old) = (
        (np.mean(values), np.var(values, ddof=1) / len(values), len(values))
        for values in ([27, 31, 29.5], [33, 32.5, 35, 34])
    )
    degrees = (v + v_old) ** 2 / (v**2 / (n - 1) + v_old**2 / (n_old - 1))
    angles = np.linspace(-np.pi / 2, np.pi / 2, 400_002)[1:-1]
    weights = density(np.tan(angles), degrees) / np.cos(angles) ** 2
    expected = weights[np.tan(angles) > (m_old - m) / (v + v_old) ** 0.5].sum() / weights.sum()
    assert records.p_faster(new, old) == pytest.approx(expected, rel=1e-3)
    assert records.p_faster(old, old) > 0.1


# The records


def test_every_record_follows_from_its_seeds():
    standing = None
    for record in records.load():
        (folder,) = records.FOLDER.glob(f"{record['number']:02}-*")
        rows = record["seeds"]
        assert [row["seed"] for row in rows] == [*range(len(rows))]
        assert records.objections(rows, standing) == []
        for key, value in records.summary(rows).items():
            assert record[key] == pytest.approx(value), (record["name"], key)
        standing = record
        recipe = (folder / "recipe.py").read_bytes()
        assert len(recipe) <= records.MAX_RECIPE_BYTES
        assert hashlib.sha256(recipe).hexdigest() == record["recipe"]
        log = (folder / "log.txt").read_text(encoding="utf-8").splitlines()
        assert [line for line in log if line.startswith("seed ")] == [f"seed {row['seed']}" for row in rows]


def test_the_page_has_the_table_of_the_records():
    page = records.PAGE.read_text(encoding="utf-8")
    assert records.page_with(page, records.load()) == page


def test_records_are_numbered_and_come_back(tmp_path):
    rows = [a_row(seed, 1.46 + 0.001 * seed) for seed in range(3)]
    for row in rows:
        (tmp_path / row["run"]).mkdir()
        (tmp_path / row["run"] / "log.txt").write_text(f"said by {row['seed']}\n")
    (tmp_path / "recipe.py").write_text("def train(): ...\n")
    folder, facts = tmp_path / "records", {"date": "2026-01-02", "processor": "one"}
    assert records.fastest(folder) is None
    first = records.write("A: first!", tmp_path, rows, facts, folder)
    faster = [{**row, "processor_seconds": 50.0} for row in rows]
    second = records.write("B", tmp_path, faster, facts, folder)
    assert [first.name, second.name] == ["01-a-first", "02-b"]
    assert (first / "recipe.py").read_text() == "def train(): ...\n"
    assert [line for line in (first / "log.txt").read_text().splitlines() if "said" in line] == [
        f"said by {row['seed']}" for row in rows
    ]
    loaded = records.load(folder)
    assert [record["seeds"] for record in loaded] == [rows, faster]
    assert [record["name"] for record in loaded] == ["A: first!", "B"]
    assert records.fastest(folder) == loaded[1]
    page = tmp_path / "page.md"
    page.write_text(f"before\n{records.START}\nold\n{records.END}\nafter\n")
    for _ in range(2):
        records.write_table(page, folder)
    text = page.read_text()
    assert text.startswith("before\n")
    assert text.endswith("\nafter\n")
    assert "old" not in text
    assert text.count("\n| ") == 4  # the header and its rule, two records


# An attempt

TINY = """
import keras
def train(ids, vocabulary_size, seed):
    print("it trains")
    {body}
    return keras.Sequential([keras.layers.Embedding(vocabulary_size, vocabulary_size)])
"""


@pytest.fixture
def trained(tmp_path, monkeypatch):
    """Train a tiny recipe in this process; return the model and what was measured."""
    monkeypatch.setattr(attempt, "gflops", lambda: 100.0)
    monkeypatch.delitem(sys.modules, "recipe", raising=False)

    def trained(body="", source=TINY):
        (tmp_path / "recipe.py").write_text(source.format(body=body))
        recipe = str(tmp_path / "recipe.py")
        return attempt.train({"recipe": recipe, "ids": [0, 1, 2], "vocabulary_size": 3, "seed": 0}, attempt.Guard())

    return trained


@pytest.mark.parametrize(
    ("body", "named"),
    [
        ("open('somewhere/shakespeare.txt')", "shakespeare.txt"),
        ("from keras_seq.data import load_corpus; load_corpus('shakespeare')", "opened"),
        ("import urllib.request; urllib.request.urlopen('http://127.0.0.1:9/')", "network"),
    ],
)
def test_a_recipe_reads_nothing_but_its_ids(trained, tmp_path, monkeypatch, body, named):
    (tmp_path / "shakespeare.txt").write_text("text")
    monkeypatch.setenv("KERAS_SEQ_DATA", str(tmp_path))
    with pytest.raises(attempt.RecipeError, match=named):
        trained(body)
    assert (tmp_path / "shakespeare.txt").read_text() == "text"  # afterwards it can be opened again


def test_nothing_is_read_while_a_model_is_scored(tmp_path, monkeypatch):
    (tmp_path / "mine.py").write_text(
        TINY.format(body="pass").replace("keras.Sequential([", "keras.Sequential([Reader(), ")
        + "class Reader(keras.layers.Layer):\n    def call(self, x):\n        open('shakespeare.txt')\n"
    )
    requests = [
        {"recipe": str(tmp_path / "mine.py"), "ids": [0, 1], "vocabulary_size": 3, "seed": 0},
        {"ids": [0] * 600},
    ]
    monkeypatch.setattr(attempt, "gflops", lambda: 100.0)
    monkeypatch.setattr(sys, "stdin", io.StringIO("".join(json.dumps(request) + "\n" for request in requests)))
    answers = tmp_path / "answers"
    with open(answers, "w") as file:
        monkeypatch.setattr(attempt.os, "dup", lambda fd: os.open(answers, os.O_WRONLY | os.O_APPEND))
        monkeypatch.setattr(attempt.os, "dup2", lambda *fds: file)
        attempt.main()
    assert "opened shakespeare.txt" in json.loads(answers.read_text().splitlines()[1])["error"]


def test_a_recipe_without_train_is_named(trained):
    with pytest.raises(attempt.RecipeError, match="no function train"):
        trained(source="x = 1")


def test_the_clock_has_the_import_all_threads_and_children(trained):
    busy = "import time; start = time.process_time()\\nwhile time.process_time() < start + 0.3: pass"
    child = f'import subprocess, sys; subprocess.run([sys.executable, "-c", "{busy}"], check=True)'
    _, measured = trained(child)
    assert measured["processor_seconds"] >= 0.3
    at_import = "import time\nstart = time.process_time()\nwhile time.process_time() < start + 0.3: pass\n"
    _, measured = trained(source=at_import + TINY)
    assert measured["processor_seconds"] >= 0.3


def a_model(function, size=5):
    ids = keras.Input((None,), dtype="int32")
    x = keras.layers.Embedding(size, size)(ids)
    return keras.Model(ids, function(x))


IDS = np.random.default_rng(0).integers(5, size=4 * records.LENGTH + 1).astype("int32")


def test_the_loss_is_that_of_all_whole_windows():
    model = a_model(lambda x: x)
    (table,) = model.get_weights()
    log_p = table - np.log(np.exp(table).sum(axis=1, keepdims=True))
    expected = -log_p[IDS[:-1], IDS[1:]].mean()
    result = attempt.score(model, IDS, 5)
    assert result["val_loss"] == pytest.approx(expected, rel=1e-5)
    assert result["parameters"] == 25


class Other(keras.layers.Layer):
    """Adds what a function makes of the rows of a batch."""

    def __init__(self, function):
        super().__init__()
        self.function = function

    def call(self, x):
        return x + self.function(x)


@pytest.mark.parametrize(
    ("function", "named"),
    [
        (lambda x: keras.ops.roll(x, -1, axis=1), "not causal"),
        (lambda x: keras.ops.roll(x, 1, axis=0), "not causal"),  # the row before has the text before
        (lambda x: keras.ops.cast(keras.ops.shape(x)[0] == 4, x.dtype) * np.arange(5.0), "outside of the window"),
    ],
)
def test_a_model_that_uses_more_than_its_window_is_refused(function, named):
    with pytest.raises(attempt.RecipeError, match=named):
        attempt.score(a_model(Other(function)), IDS, 5)


def test_logits_of_another_vocabulary_are_refused():
    with pytest.raises(attempt.RecipeError, match="shape"):
        attempt.score(a_model(lambda x: x), IDS, 6)


def test_what_is_no_model_is_named():
    with pytest.raises(attempt.RecipeError, match="returned a str"):
        attempt.score("model", IDS, 5)


# The command


@pytest.fixture
def measured(monkeypatch, tmp_path):
    """Run the command with made-up answers; return the requests and the folder of the runs."""
    requests = []

    class Attempt:
        def __init__(self, recipe, log):
            self.answers = [a_row(0, gflops=(100.0, measured.speed_after)), {"val_loss": 1.0, "parameters": 1}]

        def ask(self, **request):
            requests.append(request)
            return self.answers.pop(0)

        def __enter__(self):
            return self

        def __exit__(self, *exception):
            pass

    def measured(*arguments):
        study.main([*arguments, "--log-dir", str(tmp_path / "logs")] if "--resume" not in arguments else [*arguments])
        (folder,) = (tmp_path / "logs" / "speedrun").iterdir()
        return requests, folder

    monkeypatch.setattr(study, "Attempt", Attempt)
    measured.speed_after = 100.0
    return measured


@pytest.mark.parametrize("dev", [False, True])
def test_a_recipe_is_given_the_training_ids_only_and_scored_on_others(measured, dev):
    data = study.SplitCorpus("pydoc", pathlib.Path("nowhere"), min_length=257, held_out=dev)
    requests, _ = measured("--corpus", "pydoc", "--num-seeds", "2", *(["--score-on-dev-split"] if dev else []))
    assert [request.get("seed") for request in requests] == [0, None, 1, None]
    for train, score in zip(requests[::2], requests[1::2], strict=True):
        assert data.tokenizer.decode(train["ids"]) == data.train_text
        assert data.tokenizer.decode(score["ids"]) == (data.held_out_text if dev else data.validation_text)
        assert score.keys() == {"ids"}


def test_a_seed_on_a_noisy_machine_is_trained_again_and_others_are_not(measured, capsys):
    measured.speed_after = 130.0
    requests, folder = measured("--corpus", "pydoc", "--num-seeds", "1")
    assert "It does not count: seed 0: the machine's speed" in " ".join(capsys.readouterr().out.split())
    measured.speed_after = 101.0
    measured("--resume", str(folder), "--num-seeds", "2")
    measured("--resume", str(folder))
    assert "does not count" not in " ".join(capsys.readouterr().out.split())
    assert [request["seed"] for request in requests[::2]] == [0, 0, 1]


def test_a_resumed_folder_goes_on_with_its_recipe(measured, tmp_path):
    recipe = tmp_path / "mine.py"
    recipe.write_text("first")
    requests, folder = measured("--corpus", "pydoc", "--num-seeds", "1", "--recipe", str(recipe))
    recipe.write_text("second")
    measured("--resume", str(folder), "--num-seeds", "2")
    assert {request["recipe"] for request in requests[::2]} == {str(folder / "recipe.py")}
    assert (folder / "recipe.py").read_text() == "first"


def test_seeds_that_meet_the_rules_become_a_record_once(measured, monkeypatch, tmp_path, capsys):
    page = tmp_path / "page.md"
    page.write_text(f"{records.START}{records.END}")
    monkeypatch.setattr(records, "FOLDER", tmp_path / "records")
    monkeypatch.setattr(records, "PAGE", page)
    monkeypatch.setattr(study, "SplitCorpus", lambda name, *args, **options: SplitCorpus("pydoc", *args, **options))
    _, folder = measured("--record", "The first")
    (record,) = records.load()
    assert record["val_losses"] == [1.0, 1.0, 1.0]
    assert "| The first |" in page.read_text()
    assert "A record: 01-the-first." in " ".join(capsys.readouterr().out.split())
    measured("--resume", str(folder))
    assert records.load() == [record]
    with pytest.raises(SystemExit) as stop:  # more seeds after a look at the loss
        measured("--resume", str(folder), "--num-seeds", "4")
    assert stop.value.code == 2
    assert "expected the 3 of this record" in " ".join(capsys.readouterr().err.split())
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as stop:  # as fast, not faster
        study.main(["--record", "The second", "--num-seeds", "4", "--log-dir", "other"])
    assert stop.value.code == 1
    assert "No record: 100.0 s, p = 1 of being below the 100.0 s" in " ".join(capsys.readouterr().err.split())
    assert records.load() == [record]


def test_a_recipe_names_its_backend(monkeypatch, tmp_path):
    recipe, started = tmp_path / "mine.py", []
    monkeypatch.setattr(study.subprocess, "Popen", lambda *args, env, **pipes: started.append(env))
    for source in ('"""One."""\n\nBACKEND = "torch"\n', "# BACKEND = none\n"):
        recipe.write_text(source)
        study.Attempt(recipe, None)
    assert [env.get("KERAS_BACKEND") for env in started] == ["torch", os.environ.get("KERAS_BACKEND")]
    assert all(env["OMP_NUM_THREADS"] == "1" and "KERAS_SEQ_DATA" not in env for env in started)


CRASH = "import sys; print('so far', file=sys.stderr); raise IndexError"


@pytest.mark.parametrize("code", [pytest.param(None, marks=pytest.mark.rare), CRASH])
def test_a_mistake_in_a_recipe_is_one_sentence(monkeypatch, tmp_path, fails, code):
    """In its process, or in one that ends as that does, but without an import of Keras."""
    if code is not None:
        start = functools.partial(subprocess.Popen, [sys.executable, "-c", code])
        monkeypatch.setattr(study.subprocess, "Popen", lambda command, **options: start(**options))
    recipe = tmp_path / "mine.py"
    recipe.write_text("def train(ids, vocabulary_size, seed):\n    print('so far')\n    raise IndexError(len(ids))\n")
    sentence = fails(
        study.main, "--corpus", "pydoc", "--num-seeds", "1", "--recipe", str(recipe), "--log-dir", tmp_path / "logs"
    )
    assert f"{recipe}: It ended with exit status 1." in sentence
    (log,) = tmp_path.glob("logs/speedrun/*/seed0/log.txt")
    assert "so far" in log.read_text()
    assert "IndexError" in log.read_text()


def test_the_smoke_run_trains_the_recipe_with_two_seeds(smoke):
    assert [row["seed"] for row in smoke.rows] == [0, 1]
    assert len({row["val_loss"] for row in smoke.rows}) == 2
    for row in smoke.rows:
        saved = json.loads((smoke.folder / row["run"] / "result.json").read_text(encoding="utf-8"))
        assert row["seconds"] == pytest.approx(saved["processor_seconds"] * statistics.mean(saved["gflops"]) / 100)
        assert 0 < row["val_loss"] < np.log(120)
    assert (smoke.folder / "recipe.py").read_bytes() == (PACKAGE / "recipe.py").read_bytes()


# The recipe's n-grams


@pytest.fixture(scope="module")
def recipe():
    spec = importlib.util.spec_from_file_location("recipe_of_today", PACKAGE / "recipe.py")
    module = importlib.util.module_from_spec(spec)
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, "recipe_of_today", module)
        spec.loader.exec_module(module)
    if not hasattr(module, "KneserNey"):
        pytest.skip("the recipe counts no n-grams")
    return module


def test_the_recipes_n_grams_are_those_of_the_baseline(recipe):
    half = np.random.default_rng(0).choice(4, size=400, p=[0.5, 0.3, 0.1, 0.1])
    ids = np.concatenate([half, half])  # what begins the text comes again within it
    counts, baseline = recipe.KneserNey(ids, 4, 3), KneserNeyNGrams(ids, 4, 4)
    for contexts, table in zip(counts.contexts[1:], counts.tables()[1:], strict=True):
        for code, row in zip(contexts[::7], table[::7], strict=True):
            digits = []
            while code:
                digits.append(code % 5 - 1)  # the last id first
                code //= 5
            if len(digits) == 3:
                np.testing.assert_allclose(row, baseline.distribution(np.array(digits[::-1])), rtol=1e-5)


def test_what_is_held_out_is_as_if_it_had_not_been_counted(recipe):
    ids = np.random.default_rng(1).integers(3, size=300)
    whole, first = recipe.KneserNey(ids, 3, 2), recipe.KneserNey(ids[:250], 3, 2)
    without = whole.tables(slice(248, None))
    for length in range(3):
        is_known = np.isin(whole.contexts[length], first.contexts[length])
        np.testing.assert_allclose(without[length][is_known], first.tables()[length], rtol=1e-6)


def test_the_layer_looks_up_the_longest_context_that_was_counted(recipe):
    ids = np.array([0, 1, 2, 0, 1, 3, 0, 1, 2, 2])
    counts = recipe.KneserNey(ids, 5, 2)
    codes, tables = np.concatenate(counts.contexts), np.concatenate(counts.tables())
    order = np.argsort(codes)
    layer = recipe.NGrams(len(codes), 5, 2, dtype="float32")
    layer.set_weights([codes[order], tables[order]])
    # after nothing known the distribution of all; after "3 1" that after "1"; after "0 1" its own
    out = keras.ops.convert_to_numpy(layer(np.array([[4, 4, 0, 1], [3, 1, 3, 1]], "int32")))

    def row(*context):
        code = sum((id + 1) * 6**n for n, id in enumerate(context[::-1]))
        return tables[np.flatnonzero(codes == code)[0]]

    np.testing.assert_allclose(out[0], [row(), row(), row(0), row(0, 1)])
    np.testing.assert_allclose(out[1], [row(3), row(1), row(1, 3), row(1)])
