"""Train models in a loop that resumes exactly: configuration, optimizers, checkpoints, logs, results."""

from keras_seq.training.callbacks import TrainingDiverged, TrainingInterrupted
from keras_seq.training.checkpoints import CheckpointError
from keras_seq.training.config import OptionError, TrainConfig
from keras_seq.training.distributed import LostProcess, noticing_loss
from keras_seq.training.language_model import (
    fit_inputs,
    sampled_validation,
    stateful_training_model,
    train_language_model,
    validation_sample,
)
from keras_seq.training.log import read_metrics
from keras_seq.training.optimizers import (
    OPTIMIZERS,
    SGD,
    Adagrad,
    Adam,
    AdamW,
    InverseSqrtDecay,
    Lion,
    Muon,
    NorMuon,
    RMSprop,
    WarmupLinearDecay,
    compile_model,
)
from keras_seq.training.run_folder import load_language_model, load_result, load_run, write_result
from keras_seq.training.trainer import Trainer, fit_resumable, train_model

__all__ = [
    "OPTIMIZERS",
    "SGD",
    "Adagrad",
    "Adam",
    "AdamW",
    "CheckpointError",
    "InverseSqrtDecay",
    "Lion",
    "LostProcess",
    "Muon",
    "NorMuon",
    "OptionError",
    "RMSprop",
    "TrainConfig",
    "Trainer",
    "TrainingDiverged",
    "TrainingInterrupted",
    "WarmupLinearDecay",
    "compile_model",
    "fit_inputs",
    "fit_resumable",
    "load_language_model",
    "load_result",
    "load_run",
    "noticing_loss",
    "read_metrics",
    "sampled_validation",
    "stateful_training_model",
    "train_language_model",
    "train_model",
    "validation_sample",
    "write_result",
]
