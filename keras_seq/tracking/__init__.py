"""Log a run: metrics.jsonl and TensorBoard event files, on an axis of training tokens."""

from keras_seq.tracking.summaries import Summaries
from keras_seq.tracking.tensorboard import TokenTensorBoard

__all__ = ["Summaries", "TokenTensorBoard"]
