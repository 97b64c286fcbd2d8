import dataclasses

import keras
import pytest

from keras_seq.models import GRUConfig, LSTMConfig, RNNConfig

KINDS = [RNNConfig, GRUConfig, LSTMConfig]
VOCABULARY = 11
every_kind = pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.model_name)


def found_in(model, kind):
    """The values of the fields, read from the layers."""
    recurrent = [block for block in model.blocks if isinstance(block, kind.layer_class)]
    dropouts = [block for block in model.blocks if isinstance(block, keras.layers.Dropout)]
    assert len(dropouts) in (0, len(recurrent))
    return {
        "embedding_dim": {model.embedding.output_dim},
        "units": {layer.units for layer in recurrent},
        "num_layers": {len(recurrent)},
        "dropout": {layer.rate for layer in dropouts} or {0.0},
        "recurrent_dropout": {layer.recurrent_dropout for layer in recurrent},
        "tie_embeddings": {model.head is None},
        "recurrent_initializer": {
            {keras.initializers.Orthogonal: "orthogonal", keras.initializers.GlorotNormal: "glorot_normal"}[
                type(layer.recurrent_initializer)
            ]
            for layer in recurrent
        },
    }


@every_kind
def test_every_field_reaches_its_layers(kind):
    sizes = {"embedding_dim": 5, "units": 7, "num_layers": 2}
    for config in (
        kind(**sizes, dropout=0.3, recurrent_dropout=0.2, recurrent_initializer="glorot_normal"),
        kind(**sizes, tie_embeddings=True),
    ):
        model = config.build_model(VOCABULARY)
        assert found_in(model, kind) == {name: {value} for name, value in dataclasses.asdict(config).items()}
        assert (model.name, model.embedding.input_dim, model.context_length) == (kind.model_name, VOCABULARY, None)


@every_kind
def test_a_projection_joins_the_widths_only_where_they_differ(kind):
    for units, blocks in ((5, 1), (7, 2)):
        model = kind(embedding_dim=5, units=units, tie_embeddings=True).build_model(VOCABULARY)
        assert len(model.blocks) == blocks
