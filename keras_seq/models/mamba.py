"""The Mamba language model: selective state-space layers (Gu & Dao, 2023, arXiv:2312.00752).

    block    x + selective_state_space(norm(x))

RMS normalization; output projections without bias, starting at zero, so that each block starts as the identity.
"""

import dataclasses

from keras_seq import checks, layers
from keras_seq.models.language_model_config import LanguageModelConfig
from keras_seq.models.registry import register


@register("mamba")
@dataclasses.dataclass(frozen=True)
class MambaConfig(LanguageModelConfig):
    """Configure a Mamba language model: 0.80 million parameters by default, with 65 characters.

    Raises:
        ValueError: A field is out of its range.
    """

    embedding_dim: int = 136
    """D, the width of the residual stream."""
    num_layers: int = 6
    """Number of state-space layers."""
    state_dim: int = 16
    """N, the size of each inner feature's state."""
    expand: int = 2
    """Ratio of the inner width of a state-space layer to D."""
    kernel_size: int = 4
    """Width of each layer's causal convolution, in positions."""
    dt_rank: int | None = None
    """Width between the two matrices of the time step; by default embedding_dim / 16, rounded up."""
    use_bias: bool = False
    """Whether the input and output matrices of the layers add a bias."""
    epsilon: float = 1e-6
    """Added to the mean square by the normalizations."""
    tie_embeddings: bool = False
    """Whether the output projection is the transposed embedding matrix."""
    dropout: float = 0.0
    """Dropout rate of each layer's output."""

    def __post_init__(self):
        """Check the fields."""
        super().__post_init__()
        checks.boolean("use_bias", self.use_bias)
        checks.positive_number("epsilon", self.epsilon)
        self._layer(dtype=None)  # raises for an invalid size

    def _layer(self, dtype):
        return layers.SelectiveStateSpace(
            state_dim=self.state_dim,
            expand=self.expand,
            kernel_size=self.kernel_size,
            dt_rank=self.dt_rank,
            use_bias=self.use_bias,
            output_initializer="zeros",
            dtype=dtype,
            name="mamba",
        )

    def blocks(self, dtype=None) -> list:
        """Return the layers between embedding and head."""
        blocks = [
            layers.PreNormResidual(
                [self._layer(dtype)], dropout=self.dropout, epsilon=self.epsilon, dtype=dtype, name=f"block_{n}"
            )
            for n in range(self.num_layers)
        ]
        return [*blocks, layers.RMSNormalization(epsilon=self.epsilon, dtype=dtype, name="normalization")]
