"""What experiments say of the text that they are given, and which one shows that everything works."""

from keras_seq.data import verbatim_overlap

DEFAULT, SMALL = "docstrings", "pydoc"
MUCH = 0.05  # a share of the validation text


def for_smoke(corpus: str) -> str:
    """The corpus of a smoke run: a smaller one in place of the default."""
    return SMALL if corpus == DEFAULT else corpus


def copied(train_text: str, validation_text: str) -> str | None:
    """A sentence on how much of the validation text is copied from the training text; None where it is little."""
    share = verbatim_overlap(train_text, validation_text)
    if share < MUCH:
        return None
    return (
        f"Note: {share:.0%} of the validation text stands word for word in the training text (in stretches of 64 "
        "characters and more). A model can learn these by heart, and a compressor copies them: the losses say too "
        "little of text that is really new."
    )


def note_copied(train_text: str, validation_text: str):
    """Prints that sentence, if there is one."""
    if (sentence := copied(train_text, validation_text)) is not None:
        print(sentence)
