import dataclasses

import keras
import numpy as np
import pytest
from keras import ops

from keras_seq import layers
from keras_seq.models import LanguageModelConfig, LlamaConfig


@dataclasses.dataclass(frozen=True)
class DenseConfig(LanguageModelConfig):
    """A user's config: all that is optional is left out."""

    model_name = "user_model"
    embedding_dim: int = 4

    def blocks(self, dtype=None):
        """Return one layer that reads each position by itself."""
        return [layers.Dense(self.embedding_dim, dtype=dtype, name="block")]


@dataclasses.dataclass(frozen=True)
class CappedConfig(DenseConfig):
    """A user's config with all options of the head, which is tied, and a limit of positions."""

    context_length: int | None = None
    tie_embeddings = True
    logit_soft_cap = 0.5


def test_a_users_config_builds_an_embedding_blocks_and_a_head():
    model = DenseConfig().build_model(7, dtype="mixed_bfloat16")
    embeddings, kernel, _, head_kernel = model.get_weights()
    logits = ops.convert_to_numpy(model(np.array([[2, 5]])))[0]
    np.testing.assert_allclose(logits, embeddings[[2, 5]] @ kernel @ head_kernel, atol=0.02)
    assert (model.name, model.context_length, model.head.use_bias) == ("user_model", None, False)
    assert model.blocks[0].compute_dtype == model.embedding.compute_dtype == "bfloat16"


def test_options_of_the_head_are_attributes_or_fields():
    model = CappedConfig(context_length=3).build_model(7)
    embeddings, kernel, _ = model.get_weights()
    expected = 0.5 * np.tanh(embeddings[[2, 5]] @ kernel @ embeddings.T / 0.5)
    np.testing.assert_allclose(ops.convert_to_numpy(model(np.array([[2, 5]])))[0], expected, atol=1e-6)
    assert (model.head, model.context_length) == (None, 3)
    fields = [field.name for field in dataclasses.fields(CappedConfig)]
    assert fields == ["embedding_dim", "context_length"], "class attributes are no fields"


def test_a_field_context_length_has_to_be_given():
    with pytest.raises(ValueError, match="CappedConfig: context_length=None; expected a number of positions"):
        CappedConfig().build_model(7)


@pytest.mark.parametrize("size", [0, -1, 2.5, True, None])
def test_a_wrong_vocabulary_size_is_named_before_anything_is_built(size):
    class Untouched(DenseConfig):
        def blocks(self, dtype=None):
            raise AssertionError("built")

    with pytest.raises(ValueError, match="vocabulary_size"):
        Untouched().build_model(size)


def test_weights_are_drawn_by_the_seed_alone():
    def weights():
        keras.utils.set_random_seed(1)
        return DenseConfig().build_model(7).get_weights()

    for first, second in zip(weights(), weights(), strict=True):
        np.testing.assert_array_equal(first, second)


@pytest.mark.parametrize(
    "field", [{"embedding_dim": 0}, {"context_length": 2.5}, {"dropout": 1.0}, {"tie_embeddings": 1}], ids=str
)
def test_fields_that_most_configs_have_are_checked(field):
    @dataclasses.dataclass(frozen=True)
    class Config(CappedConfig):
        tie_embeddings: bool = False
        dropout: float = 0.0

    with pytest.raises(ValueError, match=f"{next(iter(field))}="):
        Config(**field)


def test_a_size_may_be_none_by_default_only():
    @dataclasses.dataclass(frozen=True)
    class Config(DenseConfig):
        model_name = None
        feed_forward_dim: int | None = None

    assert Config().build_model(7).name.startswith("language_model")
    for field in ({"feed_forward_dim": 0}, {"embedding_dim": None}):
        with pytest.raises(ValueError, match=f"{next(iter(field))}="):
            Config(**field)


def test_a_class_checks_its_own_fields_and_not_those_of_a_users_subclass():
    @dataclasses.dataclass(frozen=True)
    class Config(LlamaConfig):
        shift: float = -1.0

    assert Config(context_length=4).shift == -1.0
    wrong = {"epsilon": 0.0, "use_qk_norm": 1, "sliding_window": 0, "activation": "relu", "positions": 3}
    for name, value in wrong.items():
        with pytest.raises(ValueError, match=f"{name}="):
            Config(**{name: value})
