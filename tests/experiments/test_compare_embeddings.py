from experiments import compare, compare_budgets
from experiments.compare_settings import Compare, tiny
from keras_seq import text, training


def test_embeddings_are_written_also_where_no_step_was_left(tmp_path, monkeypatch):
    settings, data = tiny(Compare(models=("lstm",))), "ab\n" * 200
    vocabulary = text.Vocabulary.from_text(data)
    budget = compare_budgets.plan(settings, vocabulary.size, None)["lstm"]
    monkeypatch.setattr(training, "run", lambda *arguments, **options: {})
    corpus, run = text.Corpus("test", data, ""), tmp_path / "lstm-seed0"
    compare.train_one(run, settings, budget, settings.train, 0, corpus, vocabulary, data, data)
    assert len((run / "embedding.tsv").read_text(encoding="utf-8").splitlines()) == vocabulary.size
    assert (run / "projector_config.pbtxt").exists()
