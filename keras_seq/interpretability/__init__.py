"""Look inside models: logit lens, induction, activation patching and linear probes, for recurrent models as well."""

from keras_seq.interpretability.activations import (
    attention_weights,
    layer_outputs,
    patched_logits,
    patched_state_logits,
    patching_effects,
)
from keras_seq.interpretability.lenses import (
    LinearProbe,
    ProbeScore,
    fit_probe,
    induction_score,
    logit_lens,
    prefix_matching_scores,
    probe_layers,
    probe_past_tokens,
    repeated_sequences,
)
from keras_seq.interpretability.traces import ModelTrace, trace_model

__all__ = [
    "LinearProbe",
    "ModelTrace",
    "ProbeScore",
    "attention_weights",
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
    "trace_model",
]
