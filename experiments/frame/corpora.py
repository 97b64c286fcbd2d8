"""Corpus of smoke runs, and a note where the validation text is largely copied from the training text."""

from keras_seq.data import verbatim_overlap

DEFAULT_CORPUS, SMOKE_CORPUS = "docstrings", "pydoc"
MIN_OVERLAP_TO_REPORT = 0.05  # fraction of the validation text


def for_smoke(corpus: str) -> str:
    """Return the corpus of a smoke run: a smaller one instead of the default, any other unchanged."""
    return SMOKE_CORPUS if corpus == DEFAULT_CORPUS else corpus


def overlap_note(train_text: str, validation_text: str) -> str | None:
    """Return a note on how much of the validation text is copied from the training text, None if that is little.

    Args:
        train_text: The training split.
        validation_text: The validation split.
    """
    overlap = verbatim_overlap(train_text, validation_text)
    if overlap < MIN_OVERLAP_TO_REPORT:
        return None
    return (
        f"Note: {overlap:.0%} of the validation text occurs word for word in the training text (in passages of 64 "
        "characters or more). Models can memorize these passages and compressors copy them, so the losses "
        "underestimate the loss on new text."
    )


def print_overlap_note(train_text: str, validation_text: str):
    """Print the `overlap_note`, if there is one.

    Args:
        train_text: The training split.
        validation_text: The validation split.
    """
    if (note := overlap_note(train_text, validation_text)) is not None:
        print(note)
