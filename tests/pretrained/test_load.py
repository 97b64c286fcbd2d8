"""Models of transformers with random weights give the same logits here: whole, padded, step by step and generated."""

import json
import math
import pathlib
import shutil
import subprocess
import sys

import numpy as np
import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")
import torch
import transformers
from keras import ops
from safetensors.numpy import load_file, save_file

from keras_seq import pretrained
from keras_seq.generation.samplers import SamplingConfig
from keras_seq.generation.sampling_loop import SamplingLoop
from keras_seq.generation.search import beam_search, greedy, log_softmax
from keras_seq.models import PUBLISHED_CONFIGS
from keras_seq.ops.compiled import compiled
from tests.conftest import often
from tests.pretrained.random_configs import CONFIGS, OFTEN, QWEN3_5, random_model

numpy = ops.convert_to_numpy
CAUSAL = [name for name in CONFIGS if "bert" not in name and not name.startswith("t5")]
T5 = [name for name in CONFIGS if name.startswith("t5")]
MODERNBERT = [name for name in CONFIGS if name.startswith("modernbert")]
BERT = [name for name in CONFIGS if name.startswith("bert")]
GENERATED = ["llama-gqa", "gpt2", "mistral", "qwen2-windows", "qwen3", "qwen3_5", "mamba", "mamba2", "gemma"]
STEPPED = ["gpt2", "llama-yarn", "mistral", "qwen3_5", "mamba2", "gemma"]  # one a kind of state, and a scaled rotation
T = 23
MAX_ERROR = 2e-5  # of the largest logit


def few(names, often=OFTEN):
    """Return names as parameters, which are marked rare but for some."""
    return [pytest.param(name, marks=[] if name in often else pytest.mark.rare) for name in names]


def some_ids(vocabulary_size, length=T, seed=0):
    return np.random.default_rng(seed).integers(1, vocabulary_size, (2, length)).astype("int32")


def assert_same(logits, reference, where=...):
    logits, reference = numpy(logits)[where], reference.detach().numpy()[where]
    assert np.abs(logits - reference).max() <= MAX_ERROR * np.abs(reference).max()
    np.testing.assert_array_equal(logits.argmax(-1), reference.argmax(-1))


@pytest.mark.parametrize("name", few(CAUSAL))
def test_logits_equal_those_of_transformers(hugging_face, loaded, name):
    theirs, ours = hugging_face(name).model, loaded(name)
    ids = some_ids(ours.vocabulary_size)
    assert_same(ours.model(ids), theirs(torch.tensor(ids)).logits)


@pytest.mark.parametrize("name", few(CAUSAL, STEPPED))
def test_right_padding_and_steps_equal_it_too(hugging_face, loaded, name):
    theirs, model = hugging_face(name).model, loaded(name).model
    ids = some_ids(loaded(name).vocabulary_size)
    mask = np.arange(T) < np.array([[T], [T - 6]])
    reference = theirs(torch.tensor(ids), attention_mask=torch.tensor(mask.astype("int64"))).logits
    assert_same(model(ids, mask=mask), reference, mask)
    logits, state = model(ids[:, :17], state=model.get_initial_state(2, capacity=T), return_state=True)
    assert_same(logits, reference[:, :17])
    reference = theirs(torch.tensor(ids)).logits  # without padding, which a step cannot have
    for t in range(17, T):
        logits, state = model.step(ids[:, t : t + 1], state)
        assert_same(logits, reference[:, t])


@pytest.mark.parametrize("name", ["gpt2", "llama-gqa", "mistral", "qwen3_5"])
def test_left_padding_is_no_position(hugging_face, loaded, name):
    """As in transformers, whose users count the positions by the mask."""
    theirs, ours = hugging_face(name).model, loaded(name)
    ids = some_ids(ours.vocabulary_size)
    mask = np.arange(T) >= np.array([[0], [6]])
    positions = torch.tensor(np.maximum(mask.cumsum(1) - 1, 0))
    options = {"attention_mask": torch.tensor(mask.astype("int64")), "position_ids": positions}
    assert_same(ours.model(ids, mask=mask), theirs(torch.tensor(ids), **options).logits, mask)


@pytest.mark.parametrize("name", few(CAUSAL, GENERATED[:1]))
def test_64_greedy_ids_equal_those_of_generate(hugging_face, loaded, name):
    """By the compiled loop for one of each family; for all by a whole pass, of which every choice is the next id."""
    theirs, ours = hugging_face(name).model, loaded(name)
    ids = some_ids(ours.vocabulary_size, 5)[:1]
    expected = theirs.generate(torch.tensor(ids), max_new_tokens=64, do_sample=False, pad_token_id=0).numpy()
    choices = numpy(ours.model(expected[:, :-1].astype("int32"))).argmax(-1)
    np.testing.assert_array_equal(choices[:, 4:], expected[:, 5:])
    if name in GENERATED:
        parts = [*SamplingLoop(ours.model)(ids.tolist(), 64, SamplingConfig(temperature=0.0))]
        np.testing.assert_array_equal(np.concatenate([ids, *parts], axis=1), expected)


@pytest.mark.parametrize("name", few(BERT, {"bert-masked-lm", "bert-segments", "bert-pretraining"}))
def test_bert_equals_it_with_padding_and_segments(hugging_face, loaded, name):
    theirs, ours = hugging_face(name).model, loaded(name)
    ids = some_ids(ours.vocabulary_size)
    ids[1, T - 6 :] = 0
    segments = (np.arange(T) >= np.array([[9], [4]])).astype("int32") * (ours.config.num_segments - 1)
    inputs = {"input_ids": ids, "attention_mask": ids != 0, "token_type_ids": segments}
    output = theirs(**{key: torch.tensor(value.astype("int64")) for key, value in inputs.items()})
    result = ours.model({"token_ids": ids, "segment_ids": segments})
    encoder = ours.model if name in ("bert-encoder", "bert-segments") else ours.encoder
    if encoder is None:
        assert_same(result, output.logits, ids != 0)
    elif encoder is ours.model:
        assert_same(result["sequence_output"], output.last_hidden_state, ids != 0)
        assert_same(result["pooled_output"], output.pooler_output)
    else:
        assert_same(result, output.prediction_logits, ids != 0)
        pooled = theirs.bert(*(torch.tensor(inputs[key]) for key in inputs)).pooler_output
        assert_same(encoder({"token_ids": ids, "segment_ids": segments})["pooled_output"], pooled)


def translation(ours):
    """A source with padding behind one row and before another, its mask, and a target that begins with its start id."""
    source, target = some_ids(ours.vocabulary_size, 14), some_ids(ours.vocabulary_size, T, seed=1)
    source[0, 9:] = source[1, :3] = 0
    target[:, 0], target[:, 7] = ours.model.decoder_start_token_id, 0  # an id like others, in a target
    return source, torch.tensor((source != 0).astype("int64")), target


@pytest.mark.parametrize("name", few(T5))
def test_an_encoder_decoder_equals_it_whole_and_step_by_step(hugging_face, loaded, name):
    theirs, ours = hugging_face(name).model, loaded(name)
    source, mask, target = translation(ours)
    reference = theirs(torch.tensor(source), mask, decoder_input_ids=torch.tensor(target)).logits
    assert_same(ours.model({"encoder_token_ids": source, "decoder_token_ids": target}), reference)
    state = ours.model.get_initial_state(source, capacity=T)
    for t in range(T):
        logits, state = ours.model.step(target[:, t : t + 1], state)
        assert_same(logits, reference[:, t])


@pytest.mark.parametrize("name", few(T5))
def test_greedy_ids_of_a_target_equal_those_of_generate(hugging_face, loaded, name):
    theirs, ours = hugging_face(name).model, loaded(name)
    source, mask, _ = translation(ours)
    # without a cache, which in transformers has as many layers as the encoder
    options = {"attention_mask": mask, "max_new_tokens": 24, "do_sample": False, "use_cache": False}
    expected, model = theirs.generate(torch.tensor(source), **options).numpy(), ours.model
    assert (expected[:, 0] == model.decoder_start_token_id).all()
    step, state = compiled(model.step, model), model.get_initial_state(source, capacity=24)
    np.testing.assert_array_equal(greedy(step, state, expected[:, 0], 24)[0], expected[:, 1:])
    if name == "t5":  # a beam search scores what it returns as a whole pass does
        ids, scores = (best[:, 0] for best in beam_search(step, state, expected[:, 0], 24, num_beams=3))
        target = np.concatenate([expected[:, :1], ids[:, :-1]], axis=1)
        log_p = log_softmax(ours.model({"encoder_token_ids": source, "decoder_token_ids": target}))
        log_p = np.take_along_axis(log_p, ids[..., None], axis=-1)[..., 0].sum(axis=1)
        np.testing.assert_allclose(scores, log_p, rtol=1e-4)


def test_a_t5_of_transformers_4_says_by_its_config_whether_the_head_is_its_own(hugging_face, loaded, tmp_path):
    for name, tied in (("t5", True), ("t5-1.1", False)):
        folder = shutil.copytree(hugging_face(name).folder, tmp_path / name)
        config = json.loads((folder / "config.json").read_text())
        for key in ("scale_decoder_outputs", "dense_act_fn", "is_gated_act", "decoder_start_token_id"):
            config.pop(key)
        config |= {"tie_word_embeddings": tied, "n_positions": 512}
        (folder / "config.json").write_text(json.dumps(config))
        tensors = load_file(folder / "model.safetensors")
        old = {f"{stack}.embed_tokens.weight": tensors["shared.weight"] for stack in ("encoder", "decoder")}
        old["decoder.block.0.layer.1.EncDecAttention.relative_attention_bias.weight"] = np.ones((8, 3), "float32")
        save_file(old | tensors, folder / "model.safetensors")
        back = pretrained.load(folder)
        assert back.config == loaded(name).config
        for weight, expected in zip(back.model.get_weights(), loaded(name).model.get_weights(), strict=True):
            np.testing.assert_array_equal(weight, expected)
        save_file(tensors | {"lm_head.weight": tensors["shared.weight"] + 1}, folder / "model.safetensors")
        if tied:
            with pytest.raises(pretrained.PretrainedError, match=r"'lm_head.weight' differs from 'shared.weight'"):
                pretrained.load(folder)


def test_the_start_of_a_target_is_that_of_generation(hugging_face, tmp_path):
    folder = shutil.copytree(hugging_face("t5-epsilon").folder, tmp_path / "copy")
    assert pretrained.load(folder).model.decoder_start_token_id == 3
    path = folder / "generation_config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"decoder_start_token_id": 5}))
    assert pretrained.load(folder).model.decoder_start_token_id == 5
    path.write_text(json.dumps({"decoder_start_token_id": 41}))
    with pytest.raises(pretrained.PretrainedError, match=r"^generation_config\.json: decoder_start_token_id=41;"):
        pretrained.load(folder)
    path.unlink()
    assert pretrained.load(folder).model.decoder_start_token_id == 3
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"decoder_start_token_id": 41}))
    with pytest.raises(pretrained.PretrainedError, match=r"^config\.json: decoder_start_token_id=41; expected"):
        pretrained.load(folder)


@pytest.mark.parametrize("name", few(MODERNBERT, {"modernbert", "modernbert-biases", "modernbert-bases"}))
@often("order", {"right": 1, "left": -1}, ["right"])
def test_modernbert_equals_it_with_padding_of_any_id(hugging_face, loaded, name, order):
    """Every other id is text, 0 too; without the mask, padding would change the outputs."""
    theirs, ours = hugging_face(name).model, loaded(name)
    size, padding = ours.vocabulary_size, theirs.config.pad_token_id
    ids = (some_ids(size) + padding) % size
    ids[0, 7:9] = 0 if padding else 1
    ids[1, T - 6 :] = padding
    ids = ids[:, ::order].copy()
    mask = ids != padding
    assert mask.sum(1).tolist() == [T, T - 6]

    def outputs(ids):
        result = ours.model(ids)
        return numpy(result["sequence_output"] if isinstance(result, dict) else result)

    reference = theirs(torch.tensor(ids), attention_mask=torch.tensor(mask.astype("int64")))[0]
    assert_same(outputs(ids), reference, mask)
    unmasked = outputs(np.where(mask, ids, padding + 1))
    assert np.abs(unmasked[1] - outputs(ids)[1])[mask[1]].max() > 1e-3


def test_the_older_keys_of_modernbert_say_the_same(hugging_face, loaded, tmp_path):
    """As in folders of the hub, which transformers 4.48 wrote: no lists of layers, and keys without effect."""
    folder = shutil.copytree(hugging_face("modernbert-bases").folder, tmp_path / "old")
    config = json.loads((folder / "config.json").read_text())
    del config["layer_types"], config["rope_parameters"]
    config |= {"global_attn_every_n_layers": 2, "global_rope_theta": 77.0, "local_rope_theta": 10_000.0}
    config |= {"reference_compile": False, "layer_norm_eps": 1e-5, "position_embedding_type": "absolute"}
    config |= {"repad_logits_with_grad": False, "classifier_pooling": "mean", "cls_token_id": 40, "sep_token_id": 39}
    (folder / "config.json").write_text(json.dumps(config))
    again = pretrained.load(folder)
    assert again.config == loaded("modernbert-bases").config
    ids = some_ids(41)
    ids[ids == again.config.pad_token_id] = 1
    theirs = transformers.AutoModelForMaskedLM.from_pretrained(folder).eval()
    assert_same(again.model(ids), theirs(torch.tensor(ids)).logits)


def test_the_head_for_the_next_sentence_is_left_out_only_where_that_is_said(hugging_face, loaded):
    folder = hugging_face("bert-pretraining").folder
    with pytest.raises(pretrained.PretrainedError, match=r"also holds cls\.seq_relationship\.bias, cls"):
        pretrained.load(folder)


@pytest.fixture(scope="module")
def of_images(tmp_path_factory):
    """A Qwen3.5 of images with random weights, and its folder, with what published ones have for further ids."""
    rope = {"rope_type": "default", "rope_theta": 1e6, "partial_rotary_factor": 0.25}
    rope |= {"mrope_section": [1, 1, 0], "mrope_interleaved": True}
    others = {"mtp_num_hidden_layers": 1, "full_attention_interval": 4, "attn_output_gate": True}
    vision = {"depth": 1, "hidden_size": 8, "num_heads": 2, "intermediate_size": 8, "out_hidden_size": 24}
    ids = {"image_token_id": 37, "video_token_id": 38, "vision_start_token_id": 39, "vision_end_token_id": 40}
    config = {"text_config": {**QWEN3_5, **others, "rope_parameters": rope}, "vision_config": vision, **ids}
    model = random_model("Qwen3_5ForConditionalGeneration", config)
    folder = tmp_path_factory.mktemp("images") / "folder"
    model.save_pretrained(folder)
    tensors = load_file(folder / "model.safetensors")
    save_file(tensors | {"mtp.norm.weight": np.ones(24)}, folder / "model.safetensors")
    return model, folder


def test_the_text_of_a_model_of_images_is_read(of_images, tmp_path):
    theirs, folder = of_images
    ids = some_ids(37)
    reference = theirs(torch.tensor(ids)).logits
    assert_same(pretrained.load(folder).model(ids), reference)
    transformers.AutoModelForCausalLM.from_pretrained(folder).save_pretrained(tmp_path / "text")
    assert_same(pretrained.load(tmp_path / "text").model(ids), reference)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"text_config": None}, r"text_config=None; expected an object\.$"),
        ({"quantization_config": {"bits": 4}}, "quantization_config={'bits': 4}; expected None"),
        ({"audio_config": {}}, "audio_config={} is unknown for model_type='qwen3_5_text'"),
    ],
)
def test_what_is_around_a_text_is_known(of_images, tmp_path, changes, message):
    folder = shutil.copytree(of_images[1], tmp_path / "folder")
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | changes))
    with pytest.raises(pretrained.PretrainedError, match=rf"^config\.json: {message}"):
        pretrained.load(folder)


@pytest.mark.parametrize("name", ["gpt2", "bert-masked-lm"])
def test_older_spellings_of_names_are_read(hugging_face, loaded, tmp_path, name):
    """gpt2 on the hub has neither prefix nor head, but buffers; BERT's norms have gamma and beta."""
    folder = shutil.copytree(hugging_face(name).folder, tmp_path / "old")
    tensors = load_file(folder / "model.safetensors")
    old = {key.removeprefix("transformer."): value for key, value in tensors.items()}
    if name == "gpt2":
        old |= {"lm_head.weight": old["wte.weight"], "h.0.attn.bias": np.ones((1, 1, 9, 9), "uint8")}
    else:
        old = {key.replace("Norm.weight", "Norm.gamma").replace("Norm.bias", "Norm.beta"): v for key, v in old.items()}
        old["bert.embeddings.position_ids"] = np.arange(32)[None]
    save_file(old, folder / "model.safetensors")
    model = pretrained.load(folder).model
    for weight, expected in zip(model.get_weights(), loaded(name).model.get_weights(), strict=True):
        np.testing.assert_array_equal(weight, expected)
    if name == "gpt2":
        save_file(old | {"lm_head.weight": old["wte.weight"] + 1}, folder / "model.safetensors")
        with pytest.raises(pretrained.PretrainedError, match=r"'lm_head.weight' differs from 'wte.weight'"):
            pretrained.load(folder)


def test_ids_that_end_a_text(hugging_face, tmp_path):
    folder = shutil.copytree(hugging_face("gpt2").folder, tmp_path / "copy")
    config = json.loads((folder / "config.json").read_text())
    (folder / "generation_config.json").unlink(missing_ok=True)
    for value, expected in ((None, ()), (5, (5,)), ([3, 4], (3, 4))):
        (folder / "config.json").write_text(json.dumps(config | {"eos_token_id": value}))
        assert pretrained.load(folder).stop_token_ids == expected
    (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": 9}))
    assert pretrained.load(folder).stop_token_ids == (9,)


def test_the_cache_of_a_window_holds_the_window_only(loaded):
    """RecurrentGemma has no limit of positions, and 2,048 of a window would be too many for a short text."""
    model = loaded("gemma").model
    assert model.context_length is None
    for capacity, slots in ((None, 5), (100, 5), (3, 3)):
        state = model.get_initial_state(2, capacity)
        (cache,) = [part["self_attention"] for part in state if isinstance(part, dict)]
        assert cache["key"].shape[1] == slots


SCRIPT = """
import pathlib, re, sys
from keras_seq import pretrained

def peak():  # bytes; the maxrss of getrusage would begin with that of the process that started this one
    return 1024 * int(re.search(r"VmHWM:\\s+(\\d+)", pathlib.Path("/proc/self/status").read_text())[1])

pretrained.load(sys.argv[1])  # a tiny one: what TensorFlow allocates once
before = peak()
model = pretrained.load(sys.argv[2]).model
print(peak() - before)
"""


@pytest.mark.slow
@pytest.mark.skipif(not pathlib.Path("/proc/self/status").exists(), reason="the peak is read from /proc")
def test_the_peak_of_memory_is_the_model_and_its_largest_tensor(tmp_path):
    """However many tensors there are."""
    published = PUBLISHED_CONFIGS["gpt2"]
    model = published.config.build_model(published.vocabulary_size)
    pretrained.save(model, tmp_path / "gpt2")
    tiny = type(published.config)(8, num_layers=1, num_heads=1, feed_forward_dim=8, context_length=4)
    pretrained.save(tiny.build_model(5), tmp_path / "tiny")
    sizes = [4 * math.prod(weight.shape) for weight in model.weights]
    process = subprocess.run(
        [sys.executable, "-c", SCRIPT, tmp_path / "tiny", tmp_path / "gpt2"], capture_output=True, text=True
    )
    assert process.returncode == 0, process.stderr[-3000:]
    assert int(process.stdout) < sum(sizes) + 1.2 * max(sizes)
