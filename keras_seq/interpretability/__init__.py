"""Look inside models: logit lens, induction, activation patching and linear probes, for recurrent models as well."""

from keras_seq.interpretability.activations import layer_outputs, patched_logits, patched_state_logits
from keras_seq.interpretability.induction import induction_score, prefix_matching_scores, repeated_sequences
from keras_seq.interpretability.linear_probe import (
    LinearProbe,
    ProbeScore,
    fit_probe,
    probe_layers,
    probe_past_tokens,
)
from keras_seq.interpretability.logit_lens import logit_lens
from keras_seq.interpretability.patching_effects import patching_effects

__all__ = [
    "LinearProbe",
    "ProbeScore",
    "fit_probe",
    "induction_score",
    "layer_outputs",
    "logit_lens",
    "patched_logits",
    "patched_state_logits",
    "patching_effects",
    "prefix_matching_scores",
    "probe_layers",
    "probe_past_tokens",
    "repeated_sequences",
]
