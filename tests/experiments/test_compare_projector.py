from experiments.compare import __main__ as compare
from experiments.compare import budgets as compare_budgets
from experiments.compare.settings import CompareConfig, smoke_config
from keras_seq import training
from keras_seq.data import Corpus
from keras_seq.tokenizers import CharacterTokenizer


def test_embeddings_are_written_also_where_no_step_was_left(tmp_path, monkeypatch):
    config, data = smoke_config(CompareConfig(models=("lstm",))), "ab\n" * 200
    tokenizer = CharacterTokenizer.from_text(data)
    budget = compare_budgets.plan(config, tokenizer.vocabulary_size, None)["lstm"]
    monkeypatch.setattr(training, "train_language_model", lambda *arguments, **options: {})
    corpus, run = Corpus("test", data, ""), tmp_path / "lstm-seed0"
    compare.train_one(run, config, budget, config.train, 0, corpus, tokenizer, data, data)
    assert len((run / "embedding.tsv").read_text(encoding="utf-8").splitlines()) == tokenizer.vocabulary_size
    assert (run / "projector_config.pbtxt").exists()
