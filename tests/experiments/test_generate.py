import shutil

import pytest

from experiments import generate
from keras_seq.models import LANGUAGE_MODELS


@pytest.mark.parametrize("name", LANGUAGE_MODELS)
def test_it_writes_the_prompt_and_as_many_characters_as_asked_for(zoo, capsys, name):
    run = zoo.folder / f"{name}-seed0"
    texts = []
    for seed in (1, 1, 2):
        generate.main([str(run), "--prompt", "The ", "--length", "60", "--top-k", "40", "--seed", str(seed)])
        texts.append(capsys.readouterr().out.removesuffix("\n"))
    assert all(text.startswith("The ") and len(text) == 64 for text in texts)
    assert texts[0] == texts[1] != texts[2]


def test_in_a_process_of_its_own_it_says_nothing_but_the_text(smoke, python, capsys):
    arguments = [str(smoke.folder / "lstm-seed0"), "--prompt", "if", "--length", "20", "--seed", "3"]
    done = python("-m", "experiments.generate", *arguments)
    generate.main(arguments)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == capsys.readouterr().out


@pytest.mark.parametrize(
    ("run", "options", "names"),
    [
        ("nowhere", "", "model.keras is not there"),
        (".", "", "model.keras is not there"),
        ("no-vocabulary", "", "vocabulary.json is not there"),
        ("torn-vocabulary", "", "vocabulary.json"),
        ("torn-model", "", "model.keras"),
        ("lstm-seed0", "--prompt=", "prompt is empty"),
        ("lstm-seed0", "--prompt=猫", "'猫' (U+732B) at position 0"),
        ("lstm-seed0", "--length=-1", "length=-1"),
        ("lstm-seed0", "--length=many", "--length"),
        ("lstm-seed0", "--temperature=-1", "temperature=-1"),
        ("lstm-seed0", "--temperature=nan", "temperature=nan"),
        ("lstm-seed0", "--top-k=0", "top_k=0"),
        ("lstm-seed0", "--seed=-1", "seed=-1"),
        ("lstm-seed0", "--frobnicate=1", "--frobnicate"),
    ],
)
def test_a_mistake_is_named_in_one_sentence(smoke, fails, tmp_path, run, options, names):
    if "-vocabulary" in run or "-model" in run:
        folder = shutil.copytree(smoke.folder / "lstm-seed0", tmp_path / run)
        what = folder / ("vocabulary.json" if "vocabulary" in run else "model.keras")
        if run.startswith("torn"):
            what.write_bytes(what.read_bytes()[:40])
        else:
            what.unlink()
    else:
        folder = smoke.folder / run
    sentence = fails(generate.main, folder, *options.split())
    assert sentence.startswith("experiments.generate: ")
    assert names in sentence


def test_without_a_run_it_asks_for_one(fails):
    assert "RUN" in fails(generate.main).upper()
