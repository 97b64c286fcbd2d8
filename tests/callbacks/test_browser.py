"""The pages as a person sees them: a headless Chromium opens each, and all of its text is read."""

import pytest

from tests.callbacks.conftest import MODELS, VOCABULARY

pytestmark = pytest.mark.rare
RUNS = [f"{name}-seed0" for name in MODELS]


@pytest.fixture
def page(server, browser):
    """Opens a tab, and gives its text as soon as it shows all of some words."""

    def page(tab, *words):
        browser.open(f"{server.url}#{tab}")
        return browser.waits_for(*words)

    return page


def test_time_series_show_the_losses_first_and_all_runs(page):
    shown = page("timeseries", *RUNS, "Loss/training", "Loss/validation", "Training", "Validation", "diagnostics")
    assert shown.index("Loss/training") < shown.index("diagnostics")


def test_scalars_have_descriptions(page):
    page("scalars", *RUNS, "Loss/training", "in nats per token", "Horizontal axis: training tokens")


def test_custom_scalars_show_a_chart_a_question(page):
    titles = ("Training and validation loss", "Gain from preceding text", "Loss at positions 6 to 7")
    page("custom_scalars", *titles, *RUNS, "Matches (4)", "Matches (2)")


def test_images_show_attention_and_loss_by_position(page):
    page("images", "diagnostics/attention/block_0", "sample: 2 of 2", "Validation/loss_by_position", *RUNS)


def test_histograms_show_gates_and_entropy(page):
    page("histograms", "diagnostics/gates/lstm_0/forget", "diagnostics/attention_entropy/block_0")


def test_texts_are_samples_and_settings(page):
    page("text", "sample", "settings", "tokenizer.vocabulary_size", *RUNS)


def test_hparams_show_a_row_for_each_run(page):
    shown = page("hparams", *RUNS, "model.name", *MODELS, "parameters (millions)", "seed", "val_loss (nats per token)")
    assert all(word in shown for word in ("val_loss_streaming (nats per token)", "seconds", "tokens_per_second"))
    assert "Number of matching session groups: 2" in shown


def test_the_projector_shows_every_point_and_its_labels(page, browser):
    page(
        "projector", "2 runs found", f"Points: {VOCABULARY.vocabulary_size}", "embedding_metadata.tsv", "token", "class"
    )
