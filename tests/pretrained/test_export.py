"""Models of transformers go through keras_seq into ONNX files, which choose the ids that transformers chooses."""

import numpy as np
import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")
pytest.importorskip("onnxscript")
pytest.importorskip("onnxruntime")
import torch

import keras_seq
from keras_seq.generation.samplers import SamplingConfig
from keras_seq.generation.sampling_loop import SamplingLoop
from keras_seq.generation.uncached_model import HostSamplingLoop
from keras_seq.models import OnnxModel
from tests.conftest import often

pytestmark = pytest.mark.any_backend
NAMES = ["llama-gqa", "qwen3", "mamba2", "gemma", "qwen3_5"]  # caches; norms of heads; one size of state; both
NEW = 64  # ids


def greedy(loop, prompts):
    parts = [*loop(prompts.tolist(), NEW, SamplingConfig(temperature=0.0))]
    return np.concatenate([prompts, *parts], axis=1)


@often("name", NAMES, ("llama-gqa",))
def test_64_greedy_ids_of_an_onnx_file_equal_those_of_transformers(hugging_face, loaded, tmp_path, name):
    """Of two rows; the Keras model's own ids are the same, and the file reads the text at once as it wrote it."""
    theirs, ours = hugging_face(name).model, loaded(name)
    keras_seq.export(ours.model, tmp_path / "model.onnx", tokenizer=ours.tokenizer)
    exported = OnnxModel(tmp_path / "model.onnx")
    assert exported.vocabulary_size == ours.vocabulary_size
    assert exported.context_length == ours.model.context_length
    prompts = np.random.default_rng(0).integers(1, ours.vocabulary_size, (2, 5)).astype("int32")
    expected = theirs.generate(torch.tensor(prompts), max_new_tokens=NEW, do_sample=False, pad_token_id=0).numpy()
    np.testing.assert_array_equal(greedy(HostSamplingLoop(exported), prompts), expected)
    np.testing.assert_array_equal(greedy(SamplingLoop(ours.model), prompts), expected)
    logits = exported(expected)
    np.testing.assert_array_equal(logits[:, 4:-1].argmax(-1), expected[:, 5:])
    reference = theirs(torch.tensor(expected)).logits.detach().numpy()
    assert np.abs(logits - reference).max() <= 2e-5 * np.abs(reference).max()
