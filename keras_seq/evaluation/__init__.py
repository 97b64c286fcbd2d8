"""Compute losses and metrics over tokens, in nats per token unless the name says otherwise."""

from keras_seq.evaluation.evaluator import Evaluator, LossSum
from keras_seq.evaluation.forecasts import QuantileLoss, StudentTLoss, quantile_score
from keras_seq.evaluation.losses import TokenCrossEntropy
from keras_seq.evaluation.metrics import BitsPerCharacter, Perplexity
from keras_seq.evaluation.score import Difference, TextScore, paired_difference, score_text
from keras_seq.evaluation.sequence_losses import CTC, CRFLoss, ViterbiAccuracy, ctc_losses
from keras_seq.evaluation.streaming import DynamicEvaluation

__all__ = [
    "CTC",
    "BitsPerCharacter",
    "CRFLoss",
    "Difference",
    "DynamicEvaluation",
    "Evaluator",
    "LossSum",
    "Perplexity",
    "QuantileLoss",
    "StudentTLoss",
    "TextScore",
    "TokenCrossEntropy",
    "ViterbiAccuracy",
    "ctc_losses",
    "paired_difference",
    "quantile_score",
    "score_text",
]
