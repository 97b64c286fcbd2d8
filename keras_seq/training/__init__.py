"""Train models in a loop that resumes exactly: configuration, optimizers, checkpoints, logs, results."""

from keras_seq.training.checkpoint_callback import TrainingInterrupted
from keras_seq.training.checkpoints import CheckpointError
from keras_seq.training.compilation import compile_model
from keras_seq.training.config import TrainConfig
from keras_seq.training.language_model import train_language_model
from keras_seq.training.loop import fit_resumable
from keras_seq.training.loop_callbacks import TrainingDiverged
from keras_seq.training.metrics_logger import read_metrics
from keras_seq.training.optimizers import OPTIMIZERS, SGD, Adagrad, Adam, AdamW, Lion, Muon, NorMuon, RMSprop
from keras_seq.training.option_effects import OptionError
from keras_seq.training.processes import LostProcess, noticing_loss
from keras_seq.training.result_files import load_result, write_result
from keras_seq.training.run_folder import load_language_model, load_run
from keras_seq.training.sampled_validation import sampled_validation, validation_sample
from keras_seq.training.schedules import InverseSqrtDecay, WarmupLinearDecay
from keras_seq.training.training_run import fit_inputs, stateful_training_model, train_model

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
