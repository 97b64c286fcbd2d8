"""Summarize the results of `experiments.recipe_ablation` in a few sentences, as in docs/recipe_ablation.md.

Noise level: the change of the loss caused by different random windows alone (`pipeline`). Smaller improvements are not
reported as effects.
"""

from experiments.recipe_ablation.report import cumulative_runs, format_milli, improvements, loss_milli, ranking_message
from experiments.recipe_ablation.settings import RecipeAblationConfig


def conclusion(config: RecipeAblationConfig, corpus: str, rows) -> str:
    """Summarize the results as a Markdown list.

    Args:
        config: Options of the experiment.
        corpus: Name of the corpus.
        rows: One dict per run, as in recipe_ablation.json.
    """
    improvement = improvements(config, rows)
    cumulative = {change: kinds["cumulative"] for change, kinds in improvement.items()}
    individual = {change: kinds["individual"] for change, kinds in improvement.items() if "individual" in kinds}
    by_run = {row["run"]: row for row in rows}
    legacy, new = (by_run[cumulative_runs(rows)[index]] for index in (0, -1))
    noise = abs(cumulative.get("pipeline", 0))
    by_size = sorted(cumulative, key=lambda change: -abs(cumulative[change]))
    lower, higher = ([change for change in by_size if sign * cumulative[change] > noise] for sign in (1, -1))
    within_noise = [change for change in cumulative if abs(cumulative[change]) <= noise]
    legacy_train_loss, new_train_loss = (run["train_loss_per_original_character"] for run in (legacy, new))
    difference = legacy_train_loss - legacy["val_loss_streaming"]
    sentences = [
        f"The legacy recipe on {corpus}, {legacy['steps']:,} steps and {legacy['train_tokens']:,} characters: train "
        f"loss {legacy_train_loss:.3f}; {final_losses(config, legacy)}.",
        f"The new recipe, {new['steps']:,} steps and the same number of characters, {new['recipe']['units']:,} units: "
        f"train loss {new_train_loss:.3f}; {final_losses(config, new)}. The total improvement is "
        f"{format_milli(loss_milli(legacy) - loss_milli(new), '+')} per original character, the sum of the cumulative "
        "improvements.",
        f"Applied cumulatively, these changes lower the loss: {format_changes(lower, cumulative)}.",
        f"These changes raise it: {format_changes(higher, cumulative)}.",
        f"Within the noise level of {format_milli(noise)} (one seed): {format_changes(within_noise, cumulative)}.",
        f"Applied individually to the legacy recipe at {config.units:,} units, largest first: "
        f"{format_changes(sorted(individual, key=individual.get, reverse=True), individual)}. The improvement of a "
        "change depends on the changes before it.",
        f"The train loss that the legacy script printed is not a validation loss: it is measured on training text with "
        f"a state carried from another place of the text, and differs from val_loss_streaming by {difference:+.3f}.",
        f"Without whitespace the text has {legacy['char_ratio']:.1%} of its characters, so its loss per character is "
        "higher than that of the original text. The loss of the whitespace itself is then not included.",
        ranking_message(config, rows),
    ]
    return "\n".join(f"- {sentence}" for sentence in sentences if sentence)


def final_losses(config: RecipeAblationConfig, row) -> str:
    """Describe the validation losses of a run.

    Args:
        config: Options of the experiment.
        row: The run, as in recipe_ablation.json.
    """
    return (
        f"val_loss@{config.sequence_length} {row['val_loss']:.3f}, val_loss_streaming "
        f"{row['val_loss_streaming']:.3f}, val_loss per original character {format_milli(loss_milli(row))}"
    )


def format_changes(changes, improvement) -> str:
    """List changes with their improvements.

    Args:
        changes: Names of the changes.
        improvement: Improvement of each change, in thousandths of a nat.
    """
    return ", ".join(f"{change} {format_milli(improvement[change], '+')}" for change in changes) or "none"
