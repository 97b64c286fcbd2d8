"""What `save` writes, transformers and `load` read: the same tensors, config and logits; other models are refused."""

import dataclasses
import json

import keras
import numpy as np
import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")
import torch
import transformers
from keras import ops
from safetensors.numpy import load_file

from keras_seq import layers, models, pretrained
from keras_seq.pretrained.tensor_table import expected_tensors, tensor_of, variables_of
from keras_seq.saving import load_untrusted_model, save_model
from tests.pretrained.backend_logits import BUILT, V
from tests.pretrained.random_configs import CONFIGS
from tests.pretrained.test_load import assert_same, few, some_ids

# one a family, biases, rotations and what another family is nearest to; what is read is tested in test_load.py
WRITTEN = {"gpt2", "llama-yarn", "mistral", "mistral-full", "qwen2-windows", "qwen3-biases"}
WRITTEN |= {"qwen3_5", "mamba-rank", "mamba2", "gemma", "bert-masked-lm", "t5", "t5-unscaled"}
WRITTEN |= {"modernbert-biases", "modernbert-encoder", "modernbert-bases"}
NEXT = [name for name in CONFIGS if name.startswith("qwen3_next")]
AUTO = {
    **dict.fromkeys(("BertForMaskedLM", "ModernBertForMaskedLM"), transformers.AutoModelForMaskedLM),
    **dict.fromkeys(("BertModel", "ModernBertModel"), transformers.AutoModel),
    "T5ForConditionalGeneration": transformers.AutoModelForSeq2SeqLM,
}


def tensors_of(folder):
    return {name: value for path in sorted(folder.glob("*.safetensors")) for name, value in load_file(path).items()}


def of_both(name, ids):
    """What a model of transformers and one of ours take."""
    if not name.startswith("t5"):
        return {"input_ids": torch.tensor(ids)}, ids
    theirs = {"input_ids": torch.tensor(ids), "decoder_input_ids": torch.tensor(ids)}
    return theirs, {"encoder_token_ids": ids, "decoder_token_ids": ids}


@pytest.mark.parametrize("name", few((name for name in CONFIGS if name not in (*NEXT, "bert-pretraining")), WRITTEN))
def test_in_out_and_in_again_are_the_same_bytes_and_logits(hugging_face, loaded, tmp_path, name):
    theirs, ours = hugging_face(name), loaded(name)
    nearest = {"mistral-full": "LlamaForCausalLM"}  # the same function, of the first family that has it
    assert pretrained.save(ours.model, tmp_path / "out") == nearest.get(name, CONFIGS[name][0])
    written, original = tensors_of(tmp_path / "out"), tensors_of(theirs.folder)
    assert written.keys() == original.keys()
    for key, value in original.items():
        assert written[key].tobytes() == value.tobytes()
        assert written[key].shape == value.shape
    back = pretrained.load(tmp_path / "out")
    assert back.config == ours.config
    for weight, expected in zip(back.model.get_weights(), ours.model.get_weights(), strict=True):
        assert weight.tobytes() == expected.tobytes()
    auto = AUTO.get(CONFIGS[name][0], transformers.AutoModelForCausalLM)
    with torch.no_grad():
        inputs, _ = of_both(name, some_ids(ours.vocabulary_size))
        assert torch.equal(auto.from_pretrained(tmp_path / "out").eval()(**inputs)[0], theirs.model(**inputs)[0])


@pytest.mark.parametrize("name", few(NEXT, {"qwen3_next"}))
def test_qwen3_next_is_written_as_qwen3_5_and_its_table_keeps_every_byte(hugging_face, loaded, tmp_path, name):
    theirs, ours = hugging_face(name), loaded(name)
    assert pretrained.save(ours.model, tmp_path / "out") == "Qwen3_5ForCausalLM"
    back = pretrained.load(tmp_path / "out")
    assert back.config == ours.config
    for weight, expected in zip(back.model.get_weights(), ours.model.get_weights(), strict=True):
        assert weight.tobytes() == expected.tobytes()
    ids = some_ids(ours.vocabulary_size)
    read = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "out").eval()
    assert_same(read(torch.tensor(ids)).logits.detach().numpy(), theirs.model(torch.tensor(ids)).logits)
    variables, family = variables_of([ours.model]), pretrained.FAMILIES["qwen3_next"].of(ours.config)
    table = expected_tensors(family, {path: tuple(variable.shape) for path, variable in variables.items()})
    original = tensors_of(theirs.folder)
    assert table.keys() == original.keys()
    for key, value in original.items():
        assert tensor_of(table[key], variables).tobytes() == value.tobytes()


@pytest.mark.parametrize("name", few(BUILT, {"gpt2"}))
def test_a_model_made_here_and_read_from_its_file_is_written(randomize, tmp_path, name):
    model = randomize(BUILT[name].build_model(V))
    save_model(model, tmp_path / "model.keras")
    pretrained.save(load_untrusted_model(tmp_path / "model.keras"), tmp_path / "out", stop_token_ids=(3,))
    auto = transformers.AutoModelForSeq2SeqLM if name == "t5" else transformers.AutoModelForCausalLM
    theirs, (inputs, our_inputs) = auto.from_pretrained(tmp_path / "out").eval(), of_both(name, some_ids(V))
    assert_same(model(our_inputs), theirs(**inputs).logits)
    assert pretrained.load(tmp_path / "out").stop_token_ids == (3,)


WITHOUT_ATTENTION = {
    "gemma": models.RecurrentGemmaConfig(16, num_layers=2, num_heads=2, pattern="r"),
    "qwen3_5": models.Qwen35Config(16, num_layers=2, pattern="d", context_length=32, epsilon=1e-3),
}


@pytest.mark.parametrize("name", few(WITHOUT_ATTENTION, {"gemma"}))
def test_transformers_runs_a_model_without_attention(randomize, tmp_path, name):
    model = randomize(WITHOUT_ATTENTION[name].build_model(V))
    pretrained.save(model, tmp_path / "out")
    theirs = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "out").eval()
    ids = torch.tensor(some_ids(V))
    assert_same(model(ids), theirs(ids).logits)
    theirs.generate(ids, max_new_tokens=2)  # by default with a cache, which it cannot have without attention


def test_modernbert_made_here_and_read_from_its_file_is_written(randomize, tmp_path):
    config = models.ModernBertConfig(16, 4, 2, 24, context_length=32, sliding_window=3, pad_token_id=None)
    model = randomize(models.masked_lm(config.build_model(V)))
    save_model(model, tmp_path / "model.keras")
    copy = load_untrusted_model(tmp_path / "model.keras")
    assert pretrained.save(copy, tmp_path / "out") == "ModernBertForMaskedLM"
    assert pretrained.load(tmp_path / "out").config == dataclasses.replace(config, global_attention_interval=3)
    theirs = transformers.ModernBertForMaskedLM.from_pretrained(tmp_path / "out").eval()
    ids = some_ids(V) - 1  # id 0 too
    assert theirs.config.pad_token_id is None
    assert_same(model(ids), theirs(torch.tensor(ids)).logits)


def test_files_of_limited_size_and_other_dtypes(loaded, tmp_path):
    model = loaded("llama-gqa").model
    pretrained.save(model, tmp_path / "out", dtype="bfloat16", max_shard_bytes=8000)
    files = sorted(tmp_path.glob("out/*.safetensors"))
    assert len(files) > 1
    assert max(path.stat().st_size for path in files) < 12_000
    theirs = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "out")
    assert theirs.dtype == torch.bfloat16
    ids = some_ids(41)
    reference = theirs.float().eval()(torch.tensor(ids)).logits
    assert_same(pretrained.load(tmp_path / "out").model(ids), reference)


class Odd(keras.layers.Layer):
    """A layer that no class of transformers has."""

    def call(self, x):
        return x + 1


def with_documents():
    model = models.Mamba2Config(8, num_layers=1).build_model(V)
    model.document_token = 0
    return model


def quantized():
    model = models.Mamba2Config(8, num_layers=1).build_model(V)
    model.quantize("int8")
    return model


def named_as_modernbert():
    """Its layers have names of ModernBERT's, but the second block is missing."""
    blocks = [keras.Sequential([keras.layers.Dense(8)], name=name) for name in ("block_0", "feed_forward_0")]
    last = keras.layers.Dense(8, name="feed_forward_1")
    embedding = keras.layers.Embedding(V, 8, name="embedding")
    normalization = keras.layers.LayerNormalization(name="embedding_normalization")
    return keras.Sequential([keras.Input((None,), dtype="int32"), embedding, normalization, *blocks, last])


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (named_as_modernbert, "nearest is keras_seq's BertConfig"),
        (with_documents, "model.document_token = None"),
        (quantized, "quantized in int8"),
        (lambda: models.LSTMConfig(8, units=8).build_model(V), "nearest is keras_seq's MambaConfig: .*--model llama"),
        (lambda: models.HawkConfig(8, num_layers=1).build_model(V), r"nearest is keras_seq's RecurrentGemmaConfig"),
        (lambda: models.GatedDeltaNetConfig(8, num_layers=1).build_model(V), r"nearest is keras_seq's Qwen35Config"),
        (lambda: models.Mamba2Config(8, num_layers=1, num_heads=3).build_model(V), "expected a product of expand"),
        (lambda: models.Seq2SeqConfig(8, 1, 1, 2, 12).build_model(V), "nearest is keras_seq's T5Config"),
        (lambda: dataclasses.replace(BUILT["gpt2"], use_bias=False).build_model(V), "use_bias=True"),
        (
            lambda: dataclasses.replace(BUILT["llama"], positions=layers.RotaryPositions(scaling="ntk")).build_model(V),
            "positions|ntk|nearest",
        ),
        (lambda: models.TransformerConfig(8, num_layers=1, num_heads=2, context_length=8).build_model(V), "Llama"),
        (
            lambda: dataclasses.replace(BUILT["llama"], use_sinks=True, use_output_gate=True).build_model(V),
            "'llama' would, with use_.*=False",
        ),
        (
            lambda: models.ModernBertConfig(
                8, 4, 2, 8, positions=layers.RotaryPositions(partial_rotary_factor=0.5)
            ).build_model(V),
            "'modernbert' would, with positions=RotaryPositions",
        ),
        (
            lambda: models.token_classifier(models.ModernBertConfig(8, 1, 2, 8).build_model(V), 2),
            "No class of transformers computes what token_classifier does",
        ),
        (lambda: keras.Sequential([keras.Input((3,)), keras.layers.Dense(2)]), "has no embedding"),
    ],
)
def test_a_model_that_transformers_does_not_have_is_refused(tmp_path, make, message):
    with pytest.raises(pretrained.PretrainedError, match=message) as error:
        pretrained.save(make(), tmp_path / "out")
    assert "\n" not in str(error.value)
    assert not (tmp_path / "out").exists()


def test_a_folder_is_never_overwritten(loaded, tmp_path):
    model, here = loaded("gpt2").model, tmp_path / "here"
    here.mkdir()
    (here / "note").touch()
    (tmp_path / "link").symlink_to(tmp_path / "nowhere")
    for path in (here, here / "note", tmp_path / "link"):
        with pytest.raises(
            pretrained.PretrainedError, match="exists already; expected the name of a new folder, or an"
        ):
            pretrained.save(model, path)
    assert [path.name for path in here.iterdir()] == ["note"]


def test_an_empty_folder_is_written_to_where_it_is(loaded, tmp_path, monkeypatch):
    """It may be the current folder, a link, or a mount point."""
    folder, model = tmp_path / "empty", loaded("gpt2").model
    folder.mkdir()
    number = folder.stat().st_ino
    monkeypatch.chdir(folder)
    pretrained.save(model, ".")
    assert sorted(path.name for path in folder.iterdir()) == ["config.json", "model.safetensors"]
    assert folder.stat().st_ino == number
    assert pretrained.load(".").config == loaded("gpt2").config


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"dtype": "int8"}, "dtype='int8'; expected one of"),
        ({"dtype": ["float32"]}, "dtype="),
        ({"stop_token_ids": (V,)}, f"stop_token_ids={V}; expected an integer of at least 0 and at most {V - 1}"),
        ({"stop_token_ids": (-1,)}, "stop_token_ids=-1"),
        ({"stop_token_ids": ("a",)}, "stop_token_ids='a'"),
        ({"stop_token_ids": (True,)}, "stop_token_ids=True"),
        ({"stop_token_ids": "ab"}, "stop_token_ids='ab'; expected ids"),
        ({"stop_token_ids": 3}, r"stop_token_ids=3; expected ids, such as \(3,\)"),
    ],
)
def test_arguments_out_of_their_range_are_refused(loaded, tmp_path, options, message):
    with pytest.raises(ValueError, match=message):
        pretrained.save(loaded("gpt2").model, tmp_path / "out", **options)
    assert not [*tmp_path.iterdir()]


@pytest.mark.parametrize(
    ("value", "dtype", "message"),
    [
        (1e6, "float16", r"values of up to 1e\+06, which dtype='float16' cannot hold; expected dtype='bfloat16'"),
        (3.4e38, "bfloat16", r"values of up to 3.4e\+38, which dtype='bfloat16' cannot hold; expected dtype='float32'"),
        (np.nan, "float32", "values that are NaN or infinite"),
        (-np.inf, "bfloat16", "values that are NaN or infinite"),
    ],
)
def test_no_weight_is_written_as_infinity_or_nan(loaded, tmp_path, value, dtype, message):
    model = keras.models.clone_model(loaded("gpt2").model)
    model.get_layer("normalization").weights[0].assign([1.0] * 23 + [value])
    with pytest.raises(pretrained.PretrainedError, match=f"^The tensor 'transformer.ln_f.weight' has {message}"):
        pretrained.save(model, tmp_path / "out", dtype=dtype)
    assert not [*tmp_path.iterdir()]
    if dtype != "float32" and np.isfinite(value):
        pretrained.save(model, tmp_path / "out")


def test_logits_survive_a_save_in_keras_and_one_here(loaded, tmp_path):
    """config.json says the rotation of every variant, which a .keras file must say too."""
    for name in ("llama-llama3", "qwen2-windows"):
        model = loaded(name).model
        save_model(model, tmp_path / f"{name}.keras")
        copy = load_untrusted_model(tmp_path / f"{name}.keras")
        ids = some_ids(41)
        np.testing.assert_array_equal(ops.convert_to_numpy(copy(ids)), ops.convert_to_numpy(model(ids)))
        pretrained.save(copy, tmp_path / name)
        config = json.loads((tmp_path / name / "config.json").read_text())
        assert config["model_type"] == name.split("-")[0]
