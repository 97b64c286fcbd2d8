"""Runs of `experiments.scaling`: every size, once for the same tokens and once for the same compute.

N has no parameters of embedding and head (Kaplan et al., 2020, arXiv:2001.08361, section 1.3); FLOPs include the head.
"""

import dataclasses

from experiments.scaling.settings import ScalingConfig
from keras_seq import training
from keras_seq.models import LSTMConfig, TransformerConfig
from keras_seq.models.counts import flops_per_token

# Units for which training/config.py has the learning rates of recurrent layers. Narrow LSTMs need a higher one:
# 0.06 instead of 0.03, when Muon took five Newton-Schulz steps. Transformers of width 32 and 128 need the same one.
# Both were measured on held-out text.
DEFAULT_RATE_UNITS = 408


@dataclasses.dataclass(frozen=True)
class PlannedRun:
    """One run before it starts."""

    family: str
    budget: str
    model_config: LSTMConfig | TransformerConfig
    non_embedding_parameters: int
    flops_per_token: int
    num_steps: int
    train: training.TrainConfig


def plan(config: ScalingConfig, vocabulary_size: int) -> list[PlannedRun]:
    """Return the runs of all sizes with both budgets; a ValueError names a budget of less than one batch."""
    runs, tokens_per_step = [], config.batch_size * config.sequence_length
    for family, model_config in config.models:
        model = model_config.build_model(vocabulary_size)
        size = model.count_params() - model.embedding.count_params() - model.head.count_params()
        flops = flops_per_token(model, config.sequence_length, training=True)
        rate = config.train.peak_learning_rate(model)
        if family == "lstm" and config.train.learning_rate is None:
            rate *= (DEFAULT_RATE_UNITS / model_config.units) ** 0.5
        for budget, tokens in (("tokens", config.tokens), ("compute", config.compute / flops)):
            if (num_steps := round(tokens / tokens_per_step)) < 1:
                raise ValueError(
                    f"--{budget} {getattr(config, budget):g}: less than a batch for the {family} of "
                    f"{model.count_params():,} parameters, which takes {flops * tokens_per_step:.1g} FLOPs; give more."
                )
            warmup_steps = min(config.train.warmup_steps, num_steps // 10)
            train = dataclasses.replace(config.train, learning_rate=float(f"{rate:.3g}"), warmup_steps=warmup_steps)
            runs.append(PlannedRun(family, budget, model_config, size, flops, num_steps, train))
    return runs
