"""Generate text: sampling and searches around a model's step."""

from keras_seq.generation.constraints import Constraint, choices, regex
from keras_seq.generation.forecast_paths import sample_paths
from keras_seq.generation.json_schemas import json_schema
from keras_seq.generation.samplers import LOGIT_FILTERS, SamplingConfig, sample_token
from keras_seq.generation.sampling_loop import SamplingLoop
from keras_seq.generation.search import beam_search, contrastive_search, ctc_beam_search, ctc_greedy, greedy
from keras_seq.generation.speculative import Speculation, SpeculativeLoop
from keras_seq.generation.text_generator import TextGenerator, generate, stream

__all__ = [
    "LOGIT_FILTERS",
    "Constraint",
    "SamplingConfig",
    "SamplingLoop",
    "Speculation",
    "SpeculativeLoop",
    "TextGenerator",
    "beam_search",
    "choices",
    "contrastive_search",
    "ctc_beam_search",
    "ctc_greedy",
    "generate",
    "greedy",
    "json_schema",
    "regex",
    "sample_paths",
    "sample_token",
    "stream",
]
