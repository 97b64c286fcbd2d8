import dataclasses

from keras_seq.models import TransformerConfig

CONTEXT, VOCABULARY = 9, 11
SMALL = TransformerConfig(
    embedding_dim=8, num_layers=2, num_heads=2, feed_forward_dim=12, context_length=CONTEXT, dropout=0.3
)


def test_every_field_reaches_its_layers():
    for config in (SMALL, dataclasses.replace(SMALL, tie_embeddings=True)):
        model = config.build_model(VOCABULARY)
        *blocks, _ = model.blocks
        found = {
            "embedding_dim": {model.embedding.output_dim},
            "num_layers": {len(blocks)},
            "context_length": {model.context_length},
            "tie_embeddings": {model.head is None},
            **{
                name: {getattr(block, name) for block in blocks}
                for name in ("num_heads", "feed_forward_dim", "dropout")
            },
        }
        assert found == {name: {value} for name, value in dataclasses.asdict(config).items()}
        assert (model.name, model.embedding.input_dim) == ("transformer", VOCABULARY)
        assert all(block.causal for block in blocks)
