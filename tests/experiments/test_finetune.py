"""Fine-tuning: findings of made-up rows, and what the runs leave: adapters that make the base the run's model."""

import json

import numpy as np
import pytest
from keras import ops

from experiments.finetune import by_method, differences, verdict
from experiments.finetune import main as finetune
from keras_seq import pretrained
from keras_seq.commands.export import main as export
from keras_seq.commands.generate import main as generate
from keras_seq.models import LlamaConfig
from keras_seq.models.lora import load_adapters
from keras_seq.saving import load_untrusted_model
from keras_seq.tokenizers import load_tokenizer
from keras_seq.training import read_metrics


def a_row(method, seed, loss, trained):
    return {"method": method, "seed": seed, "val_loss": loss, "trainable_parameters": trained, "base_parameters": 200}


ROWS = [
    *(a_row("lora", seed, 1.5 + seed, 10) for seed in (0, 1)),
    *(a_row("full", seed, 1.25 + seed, 200) for seed in (0, 1)),
    a_row("scratch", 1, 3.0, 200),
]


def test_methods_are_compared_seed_by_seed():
    assert [*by_method(ROWS)] == ["lora", "full", "scratch"]
    assert differences(ROWS, "lora", "full") == [0.25, 0.25]
    assert differences(ROWS, "scratch", "lora") == [0.5]
    text = verdict(ROWS)
    assert "with 5.0% of the weights" in text
    assert "scratch is 0.500 above lora" in text
    assert "One seed" not in text
    assert "One seed" in verdict(ROWS[:1])


@pytest.mark.smoke
def test_the_adapters_and_the_base_are_the_model_of_the_run(smoke):
    base = load_untrusted_model(smoke.folder / "base-seed0" / "model.keras")
    tuned = load_untrusted_model(smoke.folder / "lora-seed0" / "model.keras")
    ids = np.arange(12).reshape(2, 6) % 5
    assert not np.allclose(ops.convert_to_numpy(base(ids)), ops.convert_to_numpy(tuned(ids)), atol=1e-3)
    load_adapters(base, smoke.folder / "lora-seed0" / "adapters.safetensors")
    np.testing.assert_allclose(ops.convert_to_numpy(base(ids)), ops.convert_to_numpy(tuned(ids)), atol=1e-5)
    row = next(row for row in smoke.rows if row["method"] == "lora")
    assert row["trainable_parameters"] == sum(int(np.prod(w.shape)) for w in base.trainable_weights)
    axes = [[line["tokens"] for line in read_metrics(smoke.folder / row["run"], "validation")] for row in smoke.rows]
    assert axes[0] == axes[1] == axes[2]


@pytest.mark.smoke
def test_a_folder_of_hugging_face_can_be_the_base_and_generates(smoke, tmp_path, capsys):
    tokenizer = load_tokenizer(smoke.folder / "base-seed0" / "tokenizer.json")
    model = LlamaConfig(16, num_layers=2, num_heads=2, context_length=16).build_model(tokenizer.vocabulary_size)
    pretrained.save(model, tmp_path / "folder", tokenizer)
    options = ["--methods", "full", "--trainable", "block_1/*", "--from", str(tmp_path / "folder")]
    finetune(["--smoke", "--log-dir", str(tmp_path), *options])
    (run,) = tmp_path.glob("finetune/*/full-seed0")
    config, result = (json.loads((run / f"{name}.json").read_text()) for name in ("config", "result"))
    assert result["trainable_parameters"] < result["base_parameters"] == model.count_params()
    assert config["model"]["base"]["parameters"] == model.count_params()
    (run / "result.json").unlink()
    finetune(["--resume", str(run.parent)])
    assert json.loads((run / "result.json").read_text())["val_loss"] == result["val_loss"]
    export([str(run), "--to", "hugging_face"])
    capsys.readouterr()
    generate([str(run / "hugging_face"), "--prompt", "def", "--max-new-tokens", "5"])
    assert capsys.readouterr().out.startswith("def")
