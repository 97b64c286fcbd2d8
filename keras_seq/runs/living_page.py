"""Write a page in which the models of one or two finished runs live, with what each was trained on and its losses."""

import os
import pathlib
from collections.abc import Sequence

from keras_seq.evaluation.score import score_text
from keras_seq.reports.pages import describe_run, name_in_config, run_label
from keras_seq.runs.finished_run import example_text, handle_unknown, validation_text
from keras_seq.saving import export_page
from keras_seq.saving.page import round_weights
from keras_seq.training import load_language_model
from keras_seq.training.run_folder import load_result

NUM_READ, NUM_SCORED = 360, 4096  # characters of the first text, and of that by which the weights are compared


def write_living_page(runs: Sequence[pathlib.Path], path: str | os.PathLike, quantization: str | None = "int8") -> None:
    """Write the page of one or two finished runs to a new .html file; weights are in int8, or with None in float32."""
    models, tokenizers = zip(*map(load_language_model, runs), strict=True)
    names = [name_in_config(run, "model") or model.name for run, model in zip(runs, models, strict=True)]
    if len({*names}) < len(names):
        names = [run_label(run) for run in runs]
    export_page(
        models,
        path,
        tokenizers,
        titles=names,
        descriptions=[*map(_description, runs, models)],
        title=" and ".join(names),
        text=_first_text(runs[0], tokenizers[0]),
        quantization=quantization,
    )


def _first_text(run, tokenizer):
    """Return whole lines of the run's validation text, from a paragraph on, or what there is in their place."""
    text = validation_text(run) or ""
    text = (text.partition("\n\n")[2] or text)[:NUM_READ]
    return handle_unknown((text.rpartition("\n")[0] or text).rstrip() or example_text(run), tokenizer, "drop")


def _description(run, model):
    """Return "109,032 parameters, trained on docstrings, 2.089 bits per character of its validation text"."""
    trained = describe_run(run).partition(" trained on ")[2]
    parts = [f"{model.count_params():,} parameters", *([f"trained on {trained}"] if trained else [])]
    result = load_result(run) or {}
    loss = result.get("val_bits_per_character_streaming", result.get("val_bits_per_character"))
    if isinstance(loss, float):
        parts.append(f"{loss:.3f} bits per character of its validation text")
    return ", ".join(parts)


def cost_of_rounding(run: pathlib.Path) -> str:
    """Return a sentence that says by how much the loss of a run's model rises with weights in 8 bits."""
    model, tokenizer = load_language_model(run)
    text = validation_text(run) or (load_result(run) or {}).get("sample") or example_text(run)
    text = handle_unknown(str(text), tokenizer, "drop")[:NUM_SCORED]
    exact = score_text(model, tokenizer, text).bits_per_character
    round_weights(model)
    rounded = score_text(model, tokenizer, text).bits_per_character
    return (
        f"{name_in_config(run, 'model') or model.name}: {rounded:.4f} bits per character with weights in 8 bits, "
        f"{exact:.4f} in float32 ({len(text):,} characters)."
    )
