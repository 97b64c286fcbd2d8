"""Load texts and cut them into training batches; every batch is a function of the step number."""

from keras_seq.data.arrays import ArrayBatches, MaskedLMMaskGenerator
from keras_seq.data.builtin_texts import CorpusError
from keras_seq.data.corpus import Corpus, load_corpus, verbatim_overlap
from keras_seq.data.shuffled_windows import MixedWindows, PackedDocuments, ShuffledWindows
from keras_seq.data.token_files import TokenFiles
from keras_seq.data.token_shards import TokenFilesError
from keras_seq.data.windows import RandomWindows, SequentialWindows, StatefulWindows, Windows

__all__ = [
    "ArrayBatches",
    "Corpus",
    "CorpusError",
    "MaskedLMMaskGenerator",
    "MixedWindows",
    "PackedDocuments",
    "RandomWindows",
    "SequentialWindows",
    "ShuffledWindows",
    "StatefulWindows",
    "TokenFiles",
    "TokenFilesError",
    "Windows",
    "load_corpus",
    "verbatim_overlap",
]
