import datetime
import itertools

import numpy as np
import pytest

from keras_seq.data.synthetic import dates

ALL = [day for (day,) in zip(*dates.split_dates(36_525), strict=True)]
FORMS = (*dates.FORMATS, *dates.HELD_OUT_FORMATS)
PAIRS = dates.draw_pairs(ALL, FORMS, 4_000, seed=0)


def test_all_days_from_1950_to_2049_are_there():
    assert len({*ALL}) == len(ALL)
    assert (min(ALL), max(ALL)) == (datetime.date(1950, 1, 1), datetime.date(2049, 12, 31))


def test_no_text_means_two_dates_in_any_format_and_case():
    meaning = {}
    for date in ALL:
        written = [
            dates.format_fields(date, september) for september in (("Sep", "Sept") if date.month == 9 else ("Sep",))
        ]
        for form, pieces in itertools.product(FORMS, written):
            assert meaning.setdefault(form.format_map(pieces).lower(), date) is date
    assert len(meaning) > 36_525 * len(FORMS)


@pytest.mark.parametrize(
    ("date", "form", "text"),
    [
        ((1994, 9, 3), "{d}.{m}.{year}", "3.9.1994"),
        ((1994, 9, 3), "{mm}/{dd}/{yy}", "09/03/94"),
        ((2003, 12, 31), "{dd}-{mon}-{yy}", "31-Dec-03"),
        ((1994, 9, 3), "{wd} {th} of {abbreviated} {year}", "Sat 3rd of Sept. 1994"),
        ((2026, 5, 22), "{wd} {th} of {abbreviated} {year}", "Fri 22nd of May 2026"),
        ((2000, 2, 29), "{weekday}, {month} {th}, {yy}", "Tuesday, February 29th, 00"),
        ((2049, 12, 11), "the {th} of {month}, {year}", "the 11th of December, 2049"),
        ((1950, 1, 1), "{month} the {th}, {year}", "January the 1st, 1950"),
    ],
)
def test_a_date_in_words(date, form, text):
    assert form in FORMS
    assert form.format_map(dates.format_fields(datetime.date(*date), "Sept")) == text


def test_ordinals_are_those_of_english():
    endings = [dates.format_fields(datetime.date(2000, 1, day))["th"] for day in range(1, 32)]
    assert [e for e in endings if not e.endswith("th")] == ["1st", "2nd", "3rd", "21st", "22nd", "23rd", "31st"]


def test_a_quarter_is_in_lower_and_a_quarter_in_upper_case():
    texts = [pair.text for pair in PAIRS if "month" in pair.format]
    assert len(texts) > 1_000
    for same in (str.lower, str.upper):
        assert 0.2 < np.mean([text == same(text) for text in texts]) < 0.3


def test_lists_of_dates_are_disjoint_and_a_function_of_the_seed():
    one, two = dates.split_dates(1_000, 200, seed=1)
    assert (len({*one}), len({*two}), len({*one, *two})) == (1_000, 200, 1_200)
    assert dates.split_dates(1_000, 200, seed=1) == [one, two]
    assert dates.split_dates(1_000, 200, seed=2)[0] != one


def test_pairs_are_a_function_of_the_seed_of_the_given_dates_and_of_each_format_alike():
    some = ALL[:50]
    pairs = dates.draw_pairs(some, dates.FORMATS, 900, seed=3)
    assert pairs == dates.draw_pairs(some, dates.FORMATS, 900, seed=3)
    assert pairs != dates.draw_pairs(some, dates.FORMATS, 900, seed=4)
    assert {pair.iso for pair in pairs} == {date.isoformat() for date in some}
    assert {form: sum(pair.format == form for pair in pairs) for form in dates.FORMATS} == {
        form: 900 // len(dates.FORMATS) for form in dates.FORMATS
    }


def test_the_alphabet_has_every_character_that_occurs_in_training_and_no_other():
    assert {*"".join(pair.text for pair in PAIRS if pair.format in dates.FORMATS)} == {*dates.ALPHABET}
    assert {*"".join(pair.text + pair.iso for pair in PAIRS)} == {*dates.ALPHABET}


def test_ids_go_there_and_back():
    texts, isos = [pair.text for pair in PAIRS], [pair.iso for pair in PAIRS]
    sources, (read, wanted) = dates.source_ids(texts), dates.target_ids(isos)
    assert sources.shape == (4_000, dates.SOURCE_LENGTH)
    assert max(map(len, texts)) == dates.SOURCE_LENGTH
    assert [dates.decode_ids(row) for row in sources] == texts
    assert [dates.decode_ids(row) for row in wanted] == isos
    assert read.shape == wanted.shape == (4_000, dates.TARGET_LENGTH)
    np.testing.assert_array_equal(read[:, 1:], wanted[:, :-1])
    assert (read[:, 0] == dates.START).all()
    assert (wanted[:, -1] == dates.END).all()
    assert {array.dtype for array in (sources, read, wanted)} == {np.dtype("int32")}
    assert max(sources.max(), read.max()) == dates.VOCABULARY_SIZE - 1
    assert ((sources == dates.PADDING).sum(axis=1) == dates.SOURCE_LENGTH - np.array([*map(len, texts)])).all()


def test_a_start_in_the_middle_shows():
    assert dates.decode_ids([5, dates.START, 5]) == dates.ALPHABET[2] + "\ufffd" + dates.ALPHABET[2]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("3 März 1994", "'3 März 1994' has the character 'ä'; expected only"),
        ("", "has 0 characters; expected a date of 1 to 29"),
        ("1" * 30, "has 30 characters; expected a date of 1 to 29"),
    ],
)
def test_a_text_that_cannot_be_read_is_refused(text, message):
    with pytest.raises(ValueError, match=message):
        dates.source_ids(["1.1.1999", text])
