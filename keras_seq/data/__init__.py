"""Load texts and cut them into training batches; every batch is a function of the step number."""

from keras_seq.data.array_batches import ArrayBatches
from keras_seq.data.corpus import Corpus, CorpusError, load_corpus
from keras_seq.data.masked_lm import MaskedLMMaskGenerator
from keras_seq.data.mixed_windows import MixedWindows
from keras_seq.data.packed_documents import PackedDocuments
from keras_seq.data.python_generator_windows import PythonGeneratorWindows
from keras_seq.data.shuffled_windows import ShuffledWindows
from keras_seq.data.token_files import TokenFiles
from keras_seq.data.token_shards import TokenFilesError
from keras_seq.data.verbatim_overlap import verbatim_overlap
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
    "PythonGeneratorWindows",
]
