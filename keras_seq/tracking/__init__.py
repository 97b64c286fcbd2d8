"""Log a run: metrics.jsonl, TensorBoard event files and other trackers, on an axis of training tokens."""

from keras_seq.tracking.summaries import Summaries, scored_key
from keras_seq.tracking.tensorboard import TokenTensorBoard
from keras_seq.tracking.tracker import Tracker

__all__ = ["Summaries", "TokenTensorBoard", "Tracker", "scored_key"]
