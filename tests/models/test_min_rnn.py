import dataclasses

import keras
import numpy as np
import pytest
from keras import ops

from keras_seq import layers
from keras_seq.models import MambaConfig, MinGRUConfig, MinLSTMConfig

VOCABULARY = 11
SMALL = {
    "mingru": MinGRUConfig(embedding_dim=6, units=7, num_layers=2, feed_forward_dim=12, kernel_size=3, dropout=0.3),
    "minlstm": MinLSTMConfig(embedding_dim=6, units=7, num_layers=2, feed_forward_dim=12, kernel_size=3, dropout=0.3),
    "mamba": MambaConfig(
        embedding_dim=6,
        num_layers=2,
        state_dim=3,
        expand=3,
        kernel_size=5,
        dropout=0.3,
        dt_rank=2,
        use_bias=True,
        epsilon=1e-3,
    ),
}


def found_in_minimal(model, kind):
    *residuals, _ = model.blocks
    mixers, feed_forwards = residuals[::2], residuals[1::2]
    convolutions, minimal, outputs = zip(*(block.layers for block in mixers), strict=True)
    assert {type(layer) for layer in minimal} == {kind.layer_class}
    assert {layer.units for layer in outputs} == {model.embedding.output_dim}
    return {
        "embedding_dim": {model.embedding.output_dim},
        "units": {layer.units for layer in minimal},
        "num_layers": {len(mixers), len(feed_forwards)},
        "feed_forward_dim": {layer.feed_forward_dim for block in feed_forwards for layer in block.layers},
        "kernel_size": {layer.kernel_size for layer in convolutions},
        "tie_embeddings": {model.head is None},
        "dropout": {block.dropout for block in residuals},
    }


def found_in_mamba(model, kind):
    *residuals, _ = model.blocks
    mambas = [layer for block in residuals for layer in block.layers]
    assert {type(layer) for layer in mambas} == {layers.SelectiveStateSpace}
    return {
        "embedding_dim": {model.embedding.output_dim},
        "num_layers": {len(mambas)},
        "state_dim": {layer.state_dim for layer in mambas},
        "expand": {layer.expand for layer in mambas},
        "kernel_size": {layer.kernel_size for layer in mambas},
        "dt_rank": {layer.dt_rank for layer in mambas},
        "use_bias": {layer.use_bias for layer in mambas},
        "epsilon": {block.normalization_layer.epsilon for block in residuals} | {model.blocks[-1].epsilon},
        "tie_embeddings": {model.head is None},
        "dropout": {block.dropout for block in residuals},
    }


@pytest.mark.parametrize("name", SMALL)
def test_every_field_reaches_its_layers(name):
    found_in = found_in_mamba if name == "mamba" else found_in_minimal
    for config in (SMALL[name], dataclasses.replace(SMALL[name], tie_embeddings=True)):
        model = config.build_model(VOCABULARY)
        found = found_in(model, type(config))
        assert found == {field: {value} for field, value in dataclasses.asdict(config).items()}
        assert (model.name, model.embedding.input_dim, model.context_length) == (name, VOCABULARY, None)


@pytest.mark.parametrize("name", SMALL)
def test_each_part_starts_as_the_identity(name):
    model = SMALL[name].build_model(VOCABULARY)
    x = np.random.default_rng(0).normal(size=(2, 5, 6)).astype("float32")
    *residuals, normalization = model.blocks
    assert isinstance(normalization, keras.layers.RMSNormalization)
    for block in residuals:
        np.testing.assert_array_equal(ops.convert_to_numpy(block(x)), x)
