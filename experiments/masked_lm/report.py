"""Report of `experiments.masked_lm`, with masked_lm.png and attention.png."""

import pathlib

from experiments.frame.report import Report
from experiments.frame.tables import Table, percent_interval
from experiments.masked_lm import plots
from keras_seq.training import load_run

NOTES = (
    "All metrics are of the masked tokens of the validation split, the same at every validation. val_loss: nats per "
    "masked token. top-5 accuracy: the fraction of them among the model's five most likely tokens. unigram: predicts "
    "by the frequencies of the tokens in the training split."
)
IMAGES = (
    "![Loss and accuracies during training](masked_lm.png)",
    "![Attention weights for the first of the texts below](attention.png)",
)


def masked_lm_report(folder: pathlib.Path, run: pathlib.Path, corpus: str, text: str, result: dict) -> Report:
    """Plot the curves of the run and the attention of its model within a text, and return the report."""
    plots.plot_curves(folder, run, result["unigram_baseline"])
    plots.plot_attention(folder, text, *load_run(run))
    columns = ("model", "parameters", "masked tokens", "val_loss", "accuracy", "top-5 accuracy")
    samples = {"Predictions of the encoder": result["predictions"]}
    title = f"{corpus}: masked language modeling"
    return Report(title, verdict(result), table(result), columns, {"run": run.name, **result}, NOTES, IMAGES, samples)


def table(result: dict) -> Table:
    """Return a line for the encoder and one for the unigram frequencies."""
    header = ["model", "parameters", "train seconds", "masked tokens", "val_loss", "accuracy", "top-5 accuracy"]
    lines, sizes = [], [f"{result['parameters']:,}", f"{result['train_seconds']:.0f}"]
    for name, cells, scores in (("encoder", sizes, result), ("unigram", ["-", "-"], result["unigram_baseline"])):
        values = [f"{scores['val_loss']:.3f}", f"{scores['accuracy']:.1%}", f"{scores['top5_accuracy']:.1%}"]
        lines.append([name, *cells, f"{result['masked_tokens']:,}", *values])
    return Table(header, lines)


def verdict(result: dict) -> str:
    """Compare the encoder with the unigram frequencies, with a 95 % interval of its accuracy."""
    baseline, accuracy = result["unigram_baseline"], percent_interval(result["accuracy"], result["masked_tokens"])
    gain = baseline["val_loss"] - result["val_loss"]
    return (
        f"The encoder's first guess is right for {accuracy} of the masked tokens, that of the token frequencies for "
        f"{baseline['accuracy']:.1%}; its loss is {abs(gain):.3f} nats per token {'lower' if gain > 0 else 'higher'}. "
        "In parentheses the 95 % interval for this many tokens; one seed."
    )
