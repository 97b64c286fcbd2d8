"""Truncated, hostile and mismatched folders are refused in one sentence, before weights are allocated."""

import contextlib
import json
import shutil
import struct

import pytest

pytest.importorskip("transformers")
import transformers
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.numpy import load_file, save_file

from keras_seq import pretrained
from keras_seq.pretrained.config_table import CONSTANTS, IGNORED
from tests.pretrained.random_configs import CONFIGS


@pytest.fixture
def folder(hugging_face, tmp_path):
    return shutil.copytree(hugging_face("llama-gqa").folder, tmp_path / "folder")


def refused(folder):
    with pytest.raises(pretrained.PretrainedError) as error:
        pretrained.load(folder)
    message = str(error.value)
    assert message.endswith(".")
    assert "\n" not in message
    return message


def change_config(folder, **changes):
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"model_type": "falcon"}, "model_type='falcon'; expected one of gpt2, llama"),
        ({"model_type": ["llama"]}, "expected one of gpt2"),
        ({"architectures": ["LlamaForSequenceClassification"]}, "expected one of LlamaForCausalLM"),
        ({"new_option": 3}, "new_option=3 is unknown for model_type='llama'"),
        ({"is_decoder": True}, "is_decoder=True; expected False"),
        ({"auto_map": {"AutoModel": "code.Model"}}, "auto_map="),
        ({"quantization_config": {"bits": 4}}, "quantization_config="),
        ({"hidden_act": "gelu_new"}, "hidden_act='gelu_new'; expected 'silu'"),
        ({"hidden_act": ["silu"]}, "hidden_act=['silu']"),
        ({"vocab_size": 10**9}, "has the shape [41, 24]; expected [1000000000, 24]"),
        ({"vocab_size": -1}, "vocab_size=-1"),
        ({"hidden_size": "24"}, "hidden_size='24'"),
        ({"num_hidden_layers": 2.5}, "num_layers=2.5"),
        ({"num_hidden_layers": 10**9}, "num_layers=1000000000; expected as many as the"),
        ({"num_hidden_layers": 3}, "lacks model.layers.2"),
        ({"num_hidden_layers": 1}, "also holds model.layers.1"),
        ({"num_attention_heads": 0}, "num_attention_heads=0"),
        ({"num_attention_heads": 5}, "num_heads"),
        ({"rms_norm_eps": "tiny"}, "epsilon='tiny'"),
        ({"rms_norm_eps": -1.0}, "epsilon=-1.0"),
        ({"rope_parameters": {"rope_type": "longrope", "rope_theta": 1e4}}, "rope_type='longrope'"),
        ({"rope_parameters": {"rope_type": "linear", "rope_theta": 9.0, "factor": 2.0, "x": 1}}, "x=1 is unknown"),
        ({"rope_parameters": 7}, "config.json:"),
        ({"rope_parameters": {"rope_type": "default", "rope_theta": "fast"}}, "config.json:"),
        ({"attention_bias": True}, "lacks"),
        ({"attention_bias": "no"}, "attention_bias='no'"),
        ({"attention_dropout": 2.0}, "dropout=2.0"),
    ],
)
def test_configs_that_say_something_else_are_refused(folder, changes, message):
    change_config(folder, **changes)
    assert message in refused(folder)


@pytest.mark.parametrize(
    ("name", "changes", "message"),
    [
        ("mamba2", {"time_step_limit": [0.0, 0.1]}, "time_step_limit=[0.0, 0.1]; expected [0, Infinity]"),
        ("mamba2", {"head_dim": 9}, "num_heads=6, head_dim=9; expected a product of expand * hidden_size"),
        ("mamba2", {"use_conv_bias": False}, "use_conv_bias=False; expected True"),
        ("gemma", {"tie_word_embeddings": False}, "tie_word_embeddings=False; expected True"),
        ("gemma", {"hidden_activation": "gelu"}, "hidden_activation='gelu'; expected 'gelu_pytorch_tanh'"),
        ("gemma", {"block_types": ["recurrent", "mamba"]}, "expected a list of 'recurrent' and 'attention'"),
        ("gemma", {"rope_parameters": {"rope_type": "yarn"}}, "expected no scaling"),
        ("gemma", {"lru_width": 25}, "lru_width=25; expected a multiple of num_heads=3"),
        ("gemma", {"head_dim": 4}, "head_dim=4; expected hidden_size / num_attention_heads"),
    ],
)
def test_what_recurrent_families_cannot_express_is_refused(hugging_face, tmp_path, name, changes, message):
    folder = shutil.copytree(hugging_face(name).folder, tmp_path / "folder")
    change_config(folder, **changes)
    assert message in refused(folder)


@pytest.mark.parametrize("family", pretrained.FAMILIES)
def test_every_key_of_a_config_is_used_or_known_to_change_nothing(family):
    """No key that this version of transformers writes is unknown, and none is both used and ignored."""
    ours = pretrained.FAMILIES[family]
    used = {key for setting in ours.settings for key in setting.defaults}
    constants = CONSTANTS.keys() | ours.constants.keys()
    assert not used & (IGNORED | ours.ignored | constants)
    assert not constants & ours.ignored
    written = getattr(transformers, ours.architectures[0]).config_class().to_dict().keys()
    assert written - used - constants - IGNORED - ours.ignored == {*()}


@pytest.mark.parametrize("family", pretrained.FAMILIES)
def test_defaults_are_those_of_transformers(family):
    ours = pretrained.FAMILIES[family]
    theirs = getattr(transformers, ours.architectures[0]).config_class().to_dict()
    wrong = {}
    for setting in ours.settings:
        for key, value in setting.defaults.items():
            # None stands for what follows from other keys; rope_theta is within rope_parameters since transformers 5
            if key in theirs and value is not None and theirs[key] != value:
                wrong[key] = (value, theirs[key])
    # "auto" is computed there, and a window that is not used becomes None
    computed = {"mamba": {"time_step_rank"}, "qwen2": {"sliding_window"}, "qwen3": {"sliding_window"}}
    assert wrong.keys() <= computed.get(family, set()), wrong


def test_files_that_are_not_whole_are_refused(folder):
    path = folder / "model.safetensors"
    data = path.read_bytes()
    (length,) = struct.unpack("<Q", data[:8])
    header = data[8 : 8 + length]
    bomb = header.replace(b'"shape":[41,24]', b'"shape":[41,9]', 1)
    for damaged in (
        *(data[:n] for n in (0, 4, 8, 8 + length // 2, 8 + length, len(data) - 1)),
        struct.pack("<Q", 1 << 60) + data[8:],
        struct.pack("<Q", len(bomb)) + bomb + data[8 + length :],
        data + b"\0",
        b"PK\x03\x04" + data,
    ):
        path.write_bytes(damaged)
        assert "model.safetensors is not a whole safetensors file" in refused(folder)
    path.unlink()
    assert "has no model.safetensors" in refused(folder)
    (folder / "pytorch_model.bin").write_bytes(b"\x80")
    assert "pickle" in refused(folder)


def test_configs_that_are_no_json_are_refused(folder):
    path = folder / "config.json"
    for text in ("", "{", "[]", "\xff", "[" * 100_000, "null"):
        path.write_text(text, encoding="latin-1")
        assert "config.json" in refused(folder)
    path.unlink()
    assert "config.json cannot be read" in refused(folder)
    assert "is not a folder" in refused(path)


def test_an_index_may_name_files_of_its_folder_only(folder):
    name = "model.safetensors"
    (folder / f"{name}.index.json").write_text(json.dumps({"weight_map": {"model.norm.weight": name}}))
    assert f"has both {name} and {name}.index.json" in refused(folder)  # transformers reads the first
    (folder / name).rename(folder / "other")
    for file in ("../model.safetensors", "/etc/passwd", "other.safetensors", "", "sub/model.safetensors", "model.bin"):
        (folder / f"{name}.index.json").write_text(json.dumps({"weight_map": {"model.norm.weight": file}}))
        refused(folder)
    for content in ({}, {"weight_map": []}, {"weight_map": {}}):
        (folder / f"{name}.index.json").write_text(json.dumps(content))
        assert 'no "weight_map"' in refused(folder)


def test_tensors_that_do_not_fit_are_refused(folder):
    path = folder / "model.safetensors"
    tensors = load_file(path)
    norm = "model.norm.weight"
    cases = [
        ({norm: tensors[norm][:3]}, "'model.norm.weight' has the shape [3]; expected [24]"),
        ({norm: tensors[norm].astype("int8")}, "holds I8"),
        ({"model.layers.0.self_attn.q_proj.bias": tensors[norm]}, "also holds model.layers.0.self_attn.q_proj.bias"),
        ({"norm.weight": tensors[norm]}, "which are the same tensor"),
    ]
    for change, message in cases:
        save_file(tensors | change, path)
        assert message in refused(folder)
    save_file({key: value for key, value in tensors.items() if key != norm}, path)
    assert "lacks model.norm.weight" in refused(folder)


@given(data=st.data())
@settings(max_examples=25, deadline=None)
def test_any_value_of_any_key_loads_or_is_refused_in_one_sentence(hugging_face, tmp_path_factory, data):
    """Values of any JSON type; shapes are checked before weights are made, so that no number is too large."""
    names = ["gpt2", "llama-gqa", "qwen2-windows", "mamba-rank", "mamba2", "gemma", "bert-encoder"]
    name = data.draw(st.sampled_from(names))
    folder = tmp_path_factory.mktemp("any") / "folder"
    shutil.copytree(hugging_face(name).folder, folder)
    config = json.loads((folder / "config.json").read_text())
    family = pretrained.FAMILIES[config["model_type"]]
    keys = sorted({key for setting in family.settings for key in setting.defaults} | {"vocab_size", *family.constants})
    scalars = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3)
    dicts = st.dictionaries(st.text(max_size=9), scalars, max_size=2)
    value = data.draw(scalars | st.lists(scalars, max_size=2) | dicts)
    change_config(folder, **{data.draw(st.sampled_from(keys)): value})
    with contextlib.suppress(pretrained.PretrainedError):  # anything else is a failure
        pretrained.load(folder)
    shutil.rmtree(folder)


def test_all_random_configs_have_a_family():
    classes = {name for family in pretrained.FAMILIES.values() for name in family.architectures}
    assert {class_name for class_name, _ in CONFIGS.values()} <= classes
