"""Generate synthetic texts and tasks whose entropy or solution is known."""

from keras_seq.data.synthetic import dates, spacing_task
from keras_seq.data.synthetic.recall import RECALL_TASKS, RecallTask
from keras_seq.data.synthetic.series import SERIES, SeriesSource
from keras_seq.data.synthetic.sources import Grammar, MarkovChain, Reversal, bracket_grammar

__all__ = [
    "RECALL_TASKS",
    "SERIES",
    "Grammar",
    "MarkovChain",
    "RecallTask",
    "Reversal",
    "SeriesSource",
    "bracket_grammar",
    "dates",
    "spacing_task",
]
