"""Published models by name, as definitions of ours, with their numbers of parameters.

```python
preset = PRESETS["gpt2"]
model = preset.definition.build(preset.vocabulary_size)
```

No weights come with them. gpt2: Radford et al., 2019, the smallest; gpt3: Brown et al., 2020, the largest, but with
dense attention in every block; bert_base: Devlin et al., 2019, uncased; transformer_base: Vaswani et al., 2017, with
one vocabulary for English and German.
"""

import dataclasses

from keras_seq.models.encoder import Encoder
from keras_seq.models.gpt import GPT
from keras_seq.models.seq2seq import Seq2Seq


@dataclasses.dataclass(frozen=True)
class Preset:
    """What a published model is made of."""

    definition: GPT | Encoder | Seq2Seq
    """What has `build(vocabulary_size)` and `count_params(vocabulary_size)`."""
    vocabulary_size: int
    """Different ids."""
    parameters: int
    """How many there are; a preset that has another number is no such model."""


PRESETS = {
    "gpt2": Preset(
        GPT(embedding_dim=768, num_layers=12, num_heads=12, feed_forward_dim=3072, context=1024, dropout=0.1),
        vocabulary_size=50_257,
        parameters=124_439_808,
    ),
    "gpt3": Preset(
        GPT(embedding_dim=12_288, num_layers=96, num_heads=96, feed_forward_dim=49_152, context=2048),
        vocabulary_size=50_257,
        parameters=174_604_259_328,
    ),
    "bert_base": Preset(
        Encoder(embedding_dim=768, num_layers=12, num_heads=12, feed_forward_dim=3072, context=512, num_segments=2),
        vocabulary_size=30_522,
        parameters=109_482_240,
    ),
    "transformer_base": Preset(
        Seq2Seq(embedding_dim=512, num_encoder_layers=6, num_decoder_layers=6, num_heads=8, feed_forward_dim=2048),
        vocabulary_size=37_000,
        parameters=63_082_496,
    ),
}
