"""The pages as a person sees them: a headless Chromium opens each, and all of its text is read."""

import pytest

from tests.callbacks.conftest import MODELS, VOCABULARY

RUNS = [f"{name}-seed0" for name in MODELS]


@pytest.fixture
def page(server, browser):
    """Opens a tab, and gives its text as soon as it shows all of some words."""

    def page(tab, *words):
        browser.open(f"{server.url}#{tab}")
        return browser.waits_for(*words)

    return page


def test_time_series_show_the_losses_first_and_all_runs(page):
    shown = page("timeseries", *RUNS, "Loss/training", "Loss/validation", "attention/block_0", "attention_entropy")
    assert shown.index("Loss/training") < shown.index("attention/block_0")
    assert all(f"{run}/{split}" in shown for run in RUNS for split in ("train", "validation"))


def test_scalars_show_training_and_validation_in_one_chart(page):
    page("scalars", *(f"{run}/{split}" for run in RUNS for split in ("train", "validation")), "epoch_loss")


def test_custom_scalars_show_a_chart_a_question(page):
    page("custom_scalars", "The models", "training", "validation", "streaming", *RUNS, "Matches (2)")


def test_images_show_attention_and_loss_by_position(page):
    page("images", "attention/block_0", "loss_by_position", *RUNS)


def test_histograms_show_gates_and_entropy(page):
    page("histograms", "gates/lstm_0/forget", "attention_entropy/block_0")


def test_texts_are_samples(page):
    page("text", "sample", *RUNS)


def test_hparams_show_a_row_for_each_run(page):
    shown = page("hparams", "model.name", *MODELS, "val_loss (nats/token)", "val_loss_streaming (nats/token)")
    assert "Number of matching session groups: 2" in shown


def test_the_projector_shows_every_point_and_its_labels(page, browser):
    page(
        "projector", "2 runs found", f"Points: {VOCABULARY.vocabulary_size}", "embedding_metadata.tsv", "token", "class"
    )
