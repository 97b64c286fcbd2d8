from experiments import compare, compare_budgets
from experiments.compare_settings import Compare, tiny
from keras_seq import training
from keras_seq.data import Corpus
from keras_seq.tokenizers import CharacterTokenizer


def test_embeddings_are_written_also_where_no_step_was_left(tmp_path, monkeypatch):
    settings, data = tiny(Compare(models=("lstm",))), "ab\n" * 200
    vocabulary = CharacterTokenizer.from_text(data)
    budget = compare_budgets.plan(settings, vocabulary.vocabulary_size, None)["lstm"]
    monkeypatch.setattr(training, "run", lambda *arguments, **options: {})
    corpus, run = Corpus("test", data, ""), tmp_path / "lstm-seed0"
    compare.train_one(run, settings, budget, settings.train, 0, corpus, vocabulary, data, data)
    assert len((run / "embedding.tsv").read_text(encoding="utf-8").splitlines()) == vocabulary.vocabulary_size
    assert (run / "projector_config.pbtxt").exists()
