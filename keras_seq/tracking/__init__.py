"""Log a run: metrics.jsonl and TensorBoard event files, on an axis of training tokens."""

from keras_seq.tracking.summaries import Summaries
from keras_seq.tracking.tensorboard import TokenTensorBoard, write_custom_scalars_layout, write_hparams_config

__all__ = [
    "Summaries",
    "TokenTensorBoard",
    "write_custom_scalars_layout",
    "write_hparams_config",
]
