"""Truncated, hostile and mismatched folders are refused in one sentence, before weights are allocated."""

import contextlib
import json
import math
import os
import re
import shutil
import struct

import keras
import pytest

pytest.importorskip("transformers")
import transformers
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.numpy import load_file, save_file

from keras_seq import pretrained
from keras_seq.pretrained.family import CONSTANTS, IGNORED, MAY_BE_ZERO, NULLABLE, OBJECTS, read_config
from keras_seq.pretrained.folder_files import write_tokenizer_files
from keras_seq.runs.finished_run import load_run_or_folder
from keras_seq.tokenizers import CharacterTokenizer
from keras_seq.training import load_language_model, load_run
from tests.pretrained.random_configs import CONFIGS, ROPE


@pytest.fixture
def folder(hugging_face, tmp_path):
    return shutil.copytree(hugging_face("llama-gqa").folder, tmp_path / "folder")


def refused(folder, **options):
    with pytest.raises(pretrained.PretrainedError) as error:
        pretrained.load(folder, **options)
    message = str(error.value)
    assert message.endswith(".")
    assert "\n" not in message
    assert len(message) < 500
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
        ({"vocab_size": 10**9}, "has the shape [41, 24]; expected [1000000000, 24]"),
        ({"num_hidden_layers": 10**9}, "num_hidden_layers=1000000000; expected an integer of at least 1 and at most"),
        ({"num_hidden_layers": 10**4}, "num_hidden_layers=10000; expected as many as the"),
        ({"num_hidden_layers": 3}, "lacks model.layers.2"),
        ({"num_hidden_layers": 1}, "also holds model.layers.1"),
        ({"num_attention_heads": 5}, "num_attention_heads=5"),
        ({"num_key_value_heads": 3}, "num_key_value_heads=3"),
        ({"head_dim": 5}, "head_dim=5"),
        ({"rope_theta": 5.0}, "rope_theta=5.0, and 10000.0 in rope_parameters; expected the same"),
        ({"rope_parameters": {"rope_theta": 1.0}}, "rope_theta=1.0; expected a number greater than 1"),
        ({"rope_parameters": {"rope_type": ["yarn"]}}, "rope_type=['yarn']"),
        ({"rope_parameters": {"rope_type": "linear", "type": "yarn"}}, "rope_type='linear', type='yarn'"),
        ({"rope_parameters": {"rope_theta": 9.0}, "rope_scaling": {"rope_theta": 8.0}}, "rope_theta=8.0"),
        ({"rope_parameters": {"rope_type": "linear", "rope_theta": 9.0, "factor": 2.0, "x": 1}}, "x=1 is unknown"),
        ({"rope_parameters": {"rope_type": "linear", "factor": 0.5}}, "factor=0.5; expected a number of at least 1"),
        ({"rope_parameters": {**ROPE["llama3"], "low_freq_factor": 9.0}}, "low_freq_factor"),
        ({"rope_parameters": {**ROPE["yarn"], "attention_factor": "2"}}, "rope_parameters: attention_factor='2'"),
        ({"rope_parameters": {"rope_type": "default", "attention_factor": 2.0}}, "attention_factor=2.0 is unknown"),
        ({"attention_bias": True}, "lacks"),
        ({"architectures": "LlamaForCausalLM"}, "architectures='LlamaForCausalLM'"),
        ({"architectures": [{}]}, "architectures=[{}]"),
        ({"tie_word_embeddings": True}, "tie_word_embeddings=true"),  # its head has other values
        ({"hidden_size": "9" * 10**5}, "hidden_size='99999"),
        ({"new_option": "9" * 10**5}, "new_option='99999"),
        ({"eos_token_id": 41}, "config.json: eos_token_id=41; expected ids from 0 to 40, or null"),
        ({"eos_token_id": True}, "config.json: eos_token_id=True"),
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
        ("mamba2", {"intermediate_size": 47}, "intermediate_size=47; expected expand * hidden_size"),
        ("qwen3", {"num_hidden_layers": 10_000}, "expected num_hidden_layers=10000 of them, the first 10000 'full_att"),
        ("gemma", {"partial_rotary_factor": 0.3}, "partial_rotary_factor=0.3, and 0.5 in rope_parameters"),
        ("gemma", {"num_hidden_layers": 90}, "num_hidden_layers=90; expected as many as the"),
        ("mamba2", {"use_conv_bias": False}, "use_conv_bias=False; expected True"),
        ("gemma", {"tie_word_embeddings": False}, "tie_word_embeddings=False; expected True"),
        ("gemma", {"hidden_activation": "gelu"}, "hidden_activation='gelu'; expected 'gelu_pytorch_tanh'"),
        ("gemma", {"block_types": ["recurrent", "mamba"]}, "expected a list of 'recurrent' and 'attention'"),
        ("gemma", {"rope_parameters": {"rope_type": "yarn"}}, "expected no scaling"),
        (
            "qwen3_5",
            {"linear_num_key_heads": 4},
            "linear_num_key_heads=4; expected a divisor of linear_num_value_heads=6",
        ),
        ("qwen3_5", {"head_dim": 6}, "head_dim=6, of which 1 are rotated; expected an even number"),
        (
            "qwen3_5",
            {"layer_types": ["full_attention"]},
            "expected num_hidden_layers=4 of 'linear_attention' and 'full_",
        ),
        ("qwen3_5", {"partial_rotary_factor": 0.3}, "partial_rotary_factor=0.3, and 0.25 in rope_parameters"),
        ("qwen3_5", {"attn_output_gate": False}, "attn_output_gate=False; expected True"),
        ("qwen3_5", {"linear_conv_kernel_dim": 1}, "linear_conv_kernel_dim=1; expected at least 2"),
        ("qwen3_next", {"num_experts": 8}, "num_experts=8 in layer 0; expected 0, or every layer in mlp_only_layers"),
        ("qwen3_next", {"num_experts": 8, "mlp_only_layers": [0], "decoder_sparse_step": 3}, "=8 in layer 2; exp"),
        ("bert-encoder", {"hidden_size": 25}, "num_attention_heads=3; expected a divisor of hidden_size=25."),
        ("gpt2", {"n_head": 5}, "n_head=5; expected a divisor of n_embd=24."),
        ("gemma", {"lru_width": 25}, "lru_width=25; expected a multiple of num_attention_heads=3"),
        ("gemma", {"head_dim": 4}, "head_dim=4; expected hidden_size / num_attention_heads"),
        ("t5", {"is_encoder_decoder": False}, "is_encoder_decoder=False; expected True"),
        ("t5", {"pad_token_id": 3}, "pad_token_id=3; expected 0"),
        ("t5", {"architectures": ["T5EncoderModel"]}, "expected one of T5ForConditionalGeneration"),
        ("t5", {"feed_forward_proj": "gated-relu"}, "feed_forward_proj='gated-relu'; expected 'relu' or 'gelu'"),
        ("t5", {"dense_act_fn": "silu"}, "dense_act_fn='silu'; expected 'relu', as feed_forward_proj='relu' says"),
        ("t5", {"feed_forward_proj": "gated-gelu"}, "dense_act_fn='relu'; expected 'gelu_new'"),
        ("t5", {"num_layers": 3}, "lacks encoder.block.2"),
        ("t5", {"num_decoder_layers": 1}, "also holds decoder.block.1"),
        ("t5", {"num_decoder_layers": 9999}, "num_decoder_layers=9999; expected as many as the"),
        ("t5", {"relative_attention_num_buckets": 3}, "relative_attention_num_buckets=3; expected an integer of at"),
        ("t5", {"relative_attention_max_distance": 4}, "relative_attention_max_distance=4; expected an integer of at"),
        ("t5-1.1", {"scale_decoder_outputs": None, "tie_word_embeddings": True}, "differs from 'shared.weight'"),
        ("modernbert", {"layer_types": ["sliding_attention"] * 4}, "of them, the first and every n-th after it 'full"),
        ("modernbert", {"layer_types": ["full_attention"]}, "expected num_hidden_layers=4 of them"),
        ("modernbert", {"global_attn_every_n_layers": 2}, "global_attn_every_n_layers=2; expected 3, as layer_types"),
        (
            "modernbert",
            {"global_rope_theta": 7.0},
            "global_rope_theta=7.0, and 160000.0 in rope_parameters: full_atten",
        ),
        ("modernbert", {"rope_parameters": {"sliding_attention": {"rope_type": "x"}}}, "rope_type='x'; expected one"),
        ("modernbert", {"rope_parameters": {"rope_theta": 1e4}}, "rope_parameters: rope_theta=10000.0; expected 'full"),
        (
            "modernbert",
            {"rope_scaling": {"rope_type": "linear"}},
            "rope_scaling={'rope_type': 'linear'}; expected None",
        ),
        ("modernbert", {"pad_token_id": 41}, "pad_token_id=41; expected an integer of at least 0 and at most 40"),
        ("modernbert", {"tie_word_embeddings": False}, "tie_word_embeddings=False; expected True"),
        ("modernbert", {"decoder_bias": False}, "decoder_bias=False; expected True"),
        ("modernbert", {"classifier_bias": True}, "classifier_bias=True; expected False"),
        ("modernbert", {"classifier_activation": "relu"}, "classifier_activation='relu'; expected 'gelu'"),
        ("modernbert", {"hidden_activation": "tanh"}, "hidden_activation='tanh'; expected 'gelu_new' or"),
        ("modernbert", {"attention_dropout": 0.5}, "mlp_dropout=0.0; expected one rate for all"),
        ("modernbert", {"hidden_size": 25}, "num_attention_heads=3; expected a divisor of hidden_size=25."),
    ],
)
def test_what_other_families_cannot_express_is_refused(hugging_face, tmp_path, name, changes, message):
    folder = shutil.copytree(hugging_face(name).folder, tmp_path / "folder")
    change_config(folder, **changes)
    assert message in refused(folder)


def wrong_values(key, default):
    """Return values that a key cannot have, by the kind of its default."""
    if isinstance(default, bool):
        return ["yes", 0, 1, 1.0, None, [True], {}]
    if key == "scale_decoder_outputs":  # or null
        return ["yes", 0, 1, 1.0, [True], {}]
    if key in OBJECTS:
        return ["linear", 7, 0, True, [], [{}]]
    if isinstance(default, str):
        return ["other", 2.0 if key == "time_step_rank" else 7, True, None, [default], {}]
    if key == "mlp_only_layers":
        return ["0", 7, True, ["0"], [None], [True], {}]
    if isinstance(default, list) or key == "layer_types":
        return ["attention", 7, True, [7], [None], {}, []]
    numbers = ["7", "", True, [7], {}, -1, 10**400]
    if "drop" in key:
        return [*numbers, 1.0, math.nan]
    if isinstance(default, float):
        return [*numbers, 0, math.nan, math.inf, None]
    nullable = default is None or key in NULLABLE
    return [*numbers, 2.0, 2**31, *([] if nullable else [None]), *([] if key in MAY_BE_ZERO else [0])]


ONE_A_FAMILY = ["gpt2", "llama", "mistral", "qwen2", "qwen3", "qwen3_5", "qwen3_next", "bert-encoder", "modernbert"]
ONE_A_FAMILY += ["mamba", "mamba2", "gemma", "t5"]


@pytest.mark.parametrize("name", ONE_A_FAMILY)
def test_every_key_refuses_a_value_of_another_kind_by_its_name(hugging_face, name):
    values = json.loads((hugging_face(name).folder / "config.json").read_text())
    family = pretrained.FAMILIES[values["model_type"]]
    read_config(family, values)
    defaults = {key: default for setting in family.settings for key, default in setting.defaults.items()}
    cases = [(key, wrong) for key, default in defaults.items() for wrong in wrong_values(key, default)]
    cases += [(key, wrong) for key, value in {**CONSTANTS, **family.constants}.items() for wrong in ("other", [7])]
    cases += [(key, int(value)) for key, value in family.constants.items() if isinstance(value, bool)]
    for key, wrong in cases:
        with pytest.raises(pretrained.PretrainedError, match=rf"^config\.json: {key}=.*; expected .*\.$") as error:
            read_config(family, values | {key: wrong})
        assert repr(wrong)[:60] in str(error.value)


@pytest.mark.parametrize("kind", ["linear", "yarn", "llama3"])
@pytest.mark.parametrize("key", ["rope_parameters", "rope_scaling"])
def test_a_scaling_without_its_fields_is_refused(hugging_face, key, kind):
    values = json.loads((hugging_face("llama").folder / "config.json").read_text()) | {"rope_parameters": None}
    rope = ROPE[kind]
    read_config(pretrained.FAMILIES["llama"], values | {key: rope})
    for field in rope.keys() - {"rope_type", "rope_theta"}:
        for wrong in (None, "2", True, [2], -1.0, 0):
            message = rf"^config\.json: {key}: {field}(=| is missing).*; expected"
            with pytest.raises(pretrained.PretrainedError, match=message):
                read_config(pretrained.FAMILIES["llama"], values | {key: rope | {field: wrong}})


def test_the_ids_that_end_a_text_are_of_the_vocabulary(hugging_face, folder, tmp_path):
    path = folder / "generation_config.json"
    for wrong in (41, -1, "a", 2.0, [1, -1], [3, None], {}):
        path.write_text(json.dumps({"eos_token_id": wrong}))
        assert "generation_config.json: eos_token_id=" in refused(folder)
    path.write_text(json.dumps({"eos_token_id": None}))
    assert pretrained.load(folder).stop_token_ids == ()
    gpt2 = shutil.copytree(hugging_face("gpt2").folder, tmp_path / "gpt2")
    change_config(gpt2, eos_token_id=50256)  # of every GPT-2 of transformers, for any vocabulary
    assert pretrained.load(gpt2).stop_token_ids == ()


def test_keys_of_the_hub_that_change_no_logits_are_known(folder):
    """SmolLM2's, its instruct models' and Qwen2.5's."""
    change_config(folder, **{"is_llama_config": True, "rope_interleaved": False, "use_mrope": False})
    change_config(folder, **{"transformers.js_config": {"dtype": "q4"}})
    pretrained.load(folder)
    change_config(folder, rope_interleaved=True)
    assert "rope_interleaved=True; expected False" in refused(folder)


def test_without_a_dtype_it_is_that_of_keras(folder):
    before = keras.config.dtype_policy()
    try:
        keras.config.set_dtype_policy("mixed_bfloat16")
        model = pretrained.load(folder).model
        assert {layer.dtype_policy.name for layer in model.blocks} == {"mixed_bfloat16"}
        assert {str(weight.dtype) for weight in model.trainable_weights} == {"float32"}
    finally:
        keras.config.set_dtype_policy(before)


def test_a_folder_of_transformers_is_no_run_and_says_what_it_lacks(folder):
    for load in (load_run, load_language_model):
        with pytest.raises(ValueError, match=r"is a Hugging Face folder: keras_seq\.pretrained\.load loads it"):
            load(folder)
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")
    with pytest.raises(ValueError, match=r"pytorch_model\.bin is a pickle"):
        load_run_or_folder(folder)


@pytest.mark.parametrize(
    "dtype", ["int32", "bool", "int8_from_float32", "float8_from_float32", "string", "x", 7, ["float32"]]
)
def test_another_dtype_than_one_of_floats_is_refused(folder, dtype):
    with pytest.raises(ValueError, match=r"^dtype=.*; expected a policy of floats"):
        pretrained.load(folder, dtype=dtype)


def test_arguments_of_another_kind_are_refused(folder):
    with pytest.raises(ValueError, match=r"^ignore='lm_head\*'; expected a list"):
        pretrained.load(folder, ignore="lm_head*")
    for dropout in ("0.1", 1.0, -0.1, True):
        with pytest.raises(ValueError, match=r"^dropout="):
            pretrained.load(folder, dropout=dropout)


def test_weights_that_a_dtype_cannot_hold_are_refused(folder):
    path = folder / "model.safetensors"
    tensors = load_file(path)
    save_file(tensors | {"model.norm.weight": 1e6 * tensors["model.norm.weight"]}, path)
    message = "'model.norm.weight' has values that float16 cannot hold; expected another dtype="
    assert message in refused(folder, dtype="float16")
    for dtype in ("bfloat16", "mixed_float16"):
        pretrained.load(folder, dtype=dtype)


def test_a_head_that_is_missing_names_the_key_that_ties_it(hugging_face, tmp_path):
    folder = shutil.copytree(hugging_face("gpt2").folder, tmp_path / "folder")
    change_config(folder, tie_word_embeddings=False)
    assert "lacks lm_head.weight; expected a file of the same model, or tie_word_embeddings=true" in refused(folder)


@pytest.mark.parametrize(
    "name",
    [
        *("config.json", "generation_config.json", "model.safetensors", "model.safetensors.index.json"),
        *("tokenizer.json", "tokenizer_config.json", "chat_template.jinja"),
    ],
)
def test_pipes_and_devices_are_not_read(folder, name):
    tokenizer = CharacterTokenizer.from_text("abc")
    write_tokenizer_files(folder, tokenizer)
    path = folder / name
    path.unlink(missing_ok=True)
    if "index" in name:
        (folder / "model.safetensors").unlink()
    path.symlink_to("/dev/zero")
    assert re.search(f"{name} .*not a regular file", refused(folder))
    path.unlink()
    os.mkfifo(path)
    assert re.search(f"{name} .*not a regular file", refused(folder))


@pytest.mark.parametrize(
    "options",
    [
        {"chat_template": ["{{ messages }}"]},
        {"chat_template": 7},
        {"bos_token": 7},
        {"eos_token": {"content": None}},
        {"do_lower_case": "no"},
    ],
)
def test_options_of_a_tokenizer_of_another_kind_are_refused(folder, options):
    write_tokenizer_files(folder, CharacterTokenizer.from_text("abc"))
    (folder / "tokenizer_config.json").write_text(json.dumps(options))
    assert f"tokenizer_config.json: {next(iter(options))}=" in refused(folder)


@pytest.mark.parametrize("family", pretrained.FAMILIES)
def test_every_key_of_a_config_is_used_or_known_to_change_nothing(family):
    """No key that this version of transformers writes is unknown, and none is both used and ignored."""
    ours = pretrained.FAMILIES[family]
    used = {key for setting in ours.settings for key in setting.defaults}
    constants = CONSTANTS.keys() | ours.constants.keys()
    of_some = {"pad_token_id", "decoder_start_token_id"}  # ModernBERT masks one, T5 begins with one
    assert not used & (ours.ignored | constants | IGNORED - of_some)
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
@settings(max_examples=25)
def test_any_value_of_any_key_loads_or_is_refused_in_one_sentence(hugging_face, tmp_path_factory, data):
    """Values of any JSON type; shapes are checked before weights are made, so that no number is too large."""
    names = ["gpt2", "llama-gqa", "qwen2-windows", "qwen3_5", "mamba-rank", "mamba2", "gemma", "bert-encoder"]
    names += ["modernbert", "t5"]
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
