"""Training, scoring and recording, the same way for every model."""

from keras_seq.training.bounded import bounded
from keras_seq.training.callbacks import Diverged
from keras_seq.training.checkpoints import CheckpointError
from keras_seq.training.compiling import compile_for
from keras_seq.training.evaluate import Evaluator, Score
from keras_seq.training.files import replacing, write_json, write_text
from keras_seq.training.language import run
from keras_seq.training.loop import fit, save_model
from keras_seq.training.losses import TokenCrossEntropy
from keras_seq.training.masking import MaskedTokens
from keras_seq.training.measured import Measured
from keras_seq.training.metrics import BitsPerCharacter, Perplexity
from keras_seq.training.optimizers import OPTIMIZERS, AdamW, Muon
from keras_seq.training.record import lines_of
from keras_seq.training.references import Reference, references
from keras_seq.training.results import finished, write_result
from keras_seq.training.schedules import InverseSquareRoot, WarmupDecay
from keras_seq.training.score import Scored, score
from keras_seq.training.settings import Train
from keras_seq.training.stops import Interrupted
from keras_seq.training.tensorboard import TokenTensorBoard, write_table

__all__ = [
    "OPTIMIZERS",
    "AdamW",
    "BitsPerCharacter",
    "CheckpointError",
    "Diverged",
    "Evaluator",
    "Interrupted",
    "InverseSquareRoot",
    "MaskedTokens",
    "Measured",
    "Muon",
    "Perplexity",
    "Reference",
    "Score",
    "Scored",
    "TokenCrossEntropy",
    "TokenTensorBoard",
    "Train",
    "WarmupDecay",
    "bounded",
    "compile_for",
    "finished",
    "fit",
    "lines_of",
    "references",
    "replacing",
    "run",
    "save_model",
    "score",
    "write_json",
    "write_result",
    "write_table",
    "write_text",
]
