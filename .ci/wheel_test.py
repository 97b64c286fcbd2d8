"""Train, save, load and generate with the installed package through its Python API; run in an empty folder."""

import importlib.util
import pathlib
import sys

import keras

import keras_seq
from keras_seq.data import StatefulWindows, load_corpus
from keras_seq.models import LSTMConfig
from keras_seq.tokenizers import CharacterTokenizer, load_tokenizer
from keras_seq.training import TrainConfig, train_language_model

assert pathlib.Path(keras_seq.__file__).is_relative_to(sys.prefix), keras_seq.__file__
assert importlib.util.find_spec("experiments") is None, "the wheel holds more than keras_seq"

text = load_corpus("docstrings").text[:20_000]
train_text, validation_text = text[:18_000], text[18_000:]
tokenizer = CharacterTokenizer.from_text(text)
model = LSTMConfig(embedding_dim=16, units=32).build_model(tokenizer.vocabulary_size)
windows = StatefulWindows(tokenizer.encode(train_text), batch_size=8, sequence_length=32)
train = TrainConfig(learning_rate=0.03, warmup_steps=4, log_every=10, validate_every=20, checkpoint_every=20)
result = train_language_model("run", model, tokenizer, windows, validation_text, 40, train, config={})
assert result["val_loss"] < 4, result

model, tokenizer = keras.models.load_model("run/model.keras"), load_tokenizer("run/tokenizer.json")
generated = keras_seq.generate(model, tokenizer, "def ", max_new_tokens=40, seed=1)
assert generated.startswith("def "), generated
assert len(generated) == 4 + 40, generated
print(f"val_loss {result['val_loss']:.3f}; generated {generated!r}")
