"""The configs of the models, a file a family, and those of published models, with their parameter counts.

```python
published = PUBLISHED_CONFIGS["gpt2"]
model = published.config.build_model(published.vocabulary_size)
```

gpt2: Radford et al., 2019, the smallest; gpt3: Brown et al., 2020, the largest, but with dense attention in every
block; bert_base: Devlin et al., 2019, uncased; modernbert_base: Warner et al., 2024; transformer_base: Vaswani et al.,
2017, with one vocabulary for English and German.
"""

import dataclasses

from keras_seq.models.families.encoders import BertConfig
from keras_seq.models.families.modernbert import ModernBertConfig
from keras_seq.models.families.seq2seq import Seq2SeqConfig
from keras_seq.models.families.transformer import GPT2Config


@dataclasses.dataclass(frozen=True)
class PublishedConfig:
    """Hold the config of a published model."""

    config: GPT2Config | BertConfig | ModernBertConfig | Seq2SeqConfig
    """Config, with `build_model(vocabulary_size)` and `count_params(vocabulary_size)`."""
    vocabulary_size: int
    """V, the number of different ids."""
    num_params: int
    """Expected parameter count, checked by the tests."""


PUBLISHED_CONFIGS = {
    "gpt2": PublishedConfig(
        GPT2Config(
            embedding_dim=768, num_layers=12, num_heads=12, feed_forward_dim=3072, context_length=1024, dropout=0.1
        ),
        vocabulary_size=50_257,
        num_params=124_439_808,
    ),
    "gpt3": PublishedConfig(
        GPT2Config(embedding_dim=12_288, num_layers=96, num_heads=96, feed_forward_dim=49_152, context_length=2048),
        vocabulary_size=50_257,
        num_params=174_604_259_328,
    ),
    "bert_base": PublishedConfig(
        BertConfig(
            embedding_dim=768, num_layers=12, num_heads=12, feed_forward_dim=3072, context_length=512, num_segments=2
        ),
        vocabulary_size=30_522,
        num_params=109_482_240,
    ),
    "modernbert_base": PublishedConfig(
        ModernBertConfig(
            **{"embedding_dim": 768, "num_layers": 22, "num_heads": 12, "feed_forward_dim": 1152},
            **{"context_length": 8192, "pad_token_id": 50_283},
        ),
        vocabulary_size=50_368,
        num_params=149_014_272,
    ),
    "transformer_base": PublishedConfig(
        Seq2SeqConfig(
            embedding_dim=512, num_encoder_layers=6, num_decoder_layers=6, num_heads=8, feed_forward_dim=2048
        ),
        vocabulary_size=37_000,
        num_params=63_082_496,
    ),
}
"""Configs of published models, with their parameter counts; they hold no weights."""
