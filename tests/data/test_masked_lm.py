import dataclasses

import numpy as np
import pytest

from keras_seq.data import RandomWindows
from keras_seq.data.arrays import MaskedLMMaskGenerator
from keras_seq.data.pipeline import step_dataset

V, PAD, MASK, CLS = 40, 0, 3, 7
MASKING = MaskedLMMaskGenerator(MASK, V, unselectable_token_ids=(PAD, CLS), seed=5)


def some_ids(shape, seed=0):
    return np.random.default_rng(seed).integers(V, size=shape).astype("int32")


def masked_batch(masking, step, ids):
    return masking.batch(step, ids)


def same(one, other):
    return all(np.array_equal(a, b) for a, b in zip(one, other, strict=True))


@pytest.mark.parametrize("fraction", [0.15, 0.4, 1.0])
def test_proportions_are_those_of_the_paper(fraction):
    ids = some_ids((400, 500))
    masked, targets, weights = masked_batch(dataclasses.replace(MASKING, mask_selection_rate=fraction), 0, ids)
    candidates = ~np.isin(ids, (PAD, MASK, CLS))
    chosen = weights == 1
    count = chosen.sum()  # about 28,000 at 0.15: proportions are within 5 sigma of 0.25 % of theirs
    assert count / candidates.sum() == pytest.approx(fraction, abs=0.005)
    hidden = chosen & (masked == MASK)
    assert hidden.sum() / count == pytest.approx(0.8, abs=0.0125)
    replaced = chosen & ~hidden & (masked != ids)
    ordinary = V - 3
    assert replaced.sum() / count == pytest.approx(0.1 * (1 - 1 / ordinary), abs=0.0125)  # some are drawn as they were
    drawn = np.bincount(masked[replaced], minlength=V)
    assert not drawn[[PAD, MASK, CLS]].any()
    assert (np.delete(drawn, (PAD, MASK, CLS)) > 0.5 * replaced.sum() / ordinary).all()
    np.testing.assert_array_equal(masked[~chosen], ids[~chosen])
    np.testing.assert_array_equal(targets, ids)
    assert set(np.unique(weights)) <= {0.0, 1.0}
    assert (masked.dtype, targets.dtype, weights.dtype) == ("int32", "int32", "float32")


def test_every_place_and_every_ordinary_id_is_as_likely_as_any_other():
    chosen = sum(masked_batch(MASKING, step, np.full((30, 20), 11))[2] for step in range(150))
    assert chosen.mean() / 150 == pytest.approx(0.15, abs=0.005)
    assert 4 < chosen.min() < chosen.max() < 48  # 22.5 on average, 4.4 its deviation
    counts = np.bincount(
        *(lambda ids: (ids.ravel(), masked_batch(MASKING, 1, ids)[2].ravel()))(some_ids((400, 500))), V
    )
    assert np.delete(counts, (PAD, MASK, CLS)).min() > 0.12 * 5000 * 0.9


def test_specials_and_padding_are_never_selected():
    masking = dataclasses.replace(MASKING, mask_selection_rate=1.0)
    for special in (PAD, MASK, CLS):
        ids = np.full((4, 50), special)
        masked, _, weights = masked_batch(masking, 2, ids)
        np.testing.assert_array_equal(masked, ids)
        assert not weights.any()


def test_a_row_without_a_candidate_has_no_weight():
    ids = some_ids((3, 30))
    ids[1] = [CLS, MASK, *[PAD] * 28]
    masked, _, weights = masked_batch(dataclasses.replace(MASKING, mask_selection_rate=0.9), 0, ids)
    assert not weights[1].any()
    np.testing.assert_array_equal(masked[1], ids[1])
    assert weights[0].any()
    assert weights[2].any()


def test_a_step_is_the_same_whenever_it_is_asked_and_unlike_any_other():
    ids = some_ids((8, 60))
    one = masked_batch(MASKING, 3, ids)
    assert same(one, masked_batch(MASKING, 3, ids))
    assert same(one, masked_batch(dataclasses.replace(MASKING), np.int64(3), ids))
    assert not same(one, masked_batch(MASKING, 4, ids))
    assert not same(one, masked_batch(dataclasses.replace(MASKING, seed=6), 3, ids))
    assert not same(
        masked_batch(dataclasses.replace(MASKING, seed=3), 5, ids), masked_batch(MASKING, 3, ids)
    )  # (3, 5) is not (5, 3)


def test_a_pipeline_gives_what_a_call_gives():
    windows = RandomWindows(some_ids(500), batch_size=4, sequence_length=30, seed=5)
    batches = step_dataset(lambda step: MASKING.batch(step, windows.batch(step)[0]), 2, 6)
    for step, batch in enumerate(batches, 2):
        assert same(batch, masked_batch(MASKING, step, windows.batch(step)[0]))
    assert step == 5


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"mask_token_id": 40}, "mask_token_id has 40; expected ids below vocabulary_size=40"),
        ({"mask_token_id": -1}, "mask_token_id=-1; expected an integer of at least 0"),
        ({"unselectable_token_ids": (0, 41)}, "unselectable_token_ids has 41"),
        ({"unselectable_token_ids": tuple(range(40))}, "All 40 ids are special"),
        ({"vocabulary_size": 0}, "vocabulary_size=0"),
        ({"seed": 0.5}, "seed="),
        *(({"mask_selection_rate": bad}, "mask_selection_rate=") for bad in (0.0, 1.1, float("nan"))),
    ],
)
def test_what_is_out_of_its_range_is_refused(given, message):
    with pytest.raises(ValueError, match=message):
        dataclasses.replace(MASKING, **given)


def test_what_is_no_id_is_refused():
    with pytest.raises(ValueError, match="ids have the dtype float32; expected integers"):
        MASKING.batch(0, np.zeros((2, 3), "float32"))
