"""An option that has no effect beside the others is refused before any work, on the command line of each experiment."""

import pytest

CASES = [
    ("compare", "--models lstm --transformer.num-layers 2", "--transformer.num-layers"),
    ("compare", "--sweep-tokens 1000", "--sweep-tokens"),
    ("compare", "--sweep learning-rate --sweep-tokens 100000000 --tokens 1000", "--sweep-tokens"),
    ("compare", "--sweep-factors 1 2", "--sweep-factors"),
    ("compare", "--models transformer --reset-prob 0.5", "--reset-prob"),
    ("compare", "--train.no-use-ema --train.ema-momentum 0.9", "ema_momentum"),
    ("compare", "--train.optimizer adamw --train.adam-lr-ratio 0.1", "adam_lr_ratio"),
    ("compare", "--train.learning-rate 1e39", "learning_rate"),
    ("date_translation", "--schedule inverse_square_root --train.final-lr-fraction 0.5", "final-lr-fraction"),
    ("date_translation", "--run somewhere --text 1 --steps 3", "--steps"),
    ("entropy_floor", "--corpora grammar --order 2", "--order"),
    ("finetune", "--methods full --lora-rank 2", "--lora-rank"),
    ("finetune", "--from somewhere --base-tokens 1000", "--base-tokens"),
    ("finetune", "--methods scratch --trainable head", "--trainable"),
    ("masked_lm", "--top-k 3", "--top-k"),
    ("masked_lm", "--run somewhere --text a --tokens 1000", "--tokens"),
    ("optimizers", "--optimizers sgd --train.adam-lr-ratio 0.1", "adam_lr_ratio"),
    ("recall", "--tasks parity --alphabet-size 40", "--alphabet-size"),
    ("recall", "--tasks parity --max-items 2", "--max-items"),
    ("sequence_reversal", "--broken-mask --lstm.units 8", "--lstm.units"),
    ("shakespeare", "--models transformer --reset-prob 0.5", "--reset-prob"),
    ("shakespeare", "--models transformer --lstm.units 8", "--lstm.units"),
    ("space_restoration", "--run somewhere --text a --characters 1000", "--characters"),
]


@pytest.mark.parametrize(("name", "words", "option"), CASES, ids=[" ".join(case[:2]) for case in CASES])
def test_an_option_without_effect_is_refused(refuses, name, words, option):
    refuses(name, words, option)
