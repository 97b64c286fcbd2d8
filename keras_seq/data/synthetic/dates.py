"""Dates as people write them, and as ISO 8601 does: pairs to learn to translate, drawn from a seed.

    "Sat 3rd of Sept. 1994"  ->  "1994-09-03"             from 1950-01-01 to 2049-12-31

No text means two dates. In numbers with dots the day comes first, with slashes the month, and a year of four digits in
front is followed by the month; any other order has the month as a word. A year of two digits is that of 1950 to 2049.

ids:  0 padding, 1 start, 2 end, then the characters.   source = text,   target = start, 1994-09-03, end
"""

import datetime
import re
import string
from typing import NamedTuple

import numpy as np

from keras_seq import checks
from keras_seq.tokenizers.text_errors import short_repr

FIRST, LAST = datetime.date(1950, 1, 1), datetime.date(2049, 12, 31)
MONTHS = (
    *("January", "February", "March", "April", "May", "June", "July"),
    *("August", "September", "October", "November", "December"),
)
WEEKDAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
ORDINALS = {1: "st", 2: "nd", 3: "rd", 21: "st", 22: "nd", 23: "rd", 31: "st"}

FORMATS = (  # `fields` says what the names in braces are
    "{d}.{m}.{year}",
    "{dd}.{mm}.{yy}",
    "{m}/{d}/{year}",
    "{mm}/{dd}/{yy}",
    "{year}/{mm}/{dd}",
    "{year}{mm}{dd}",
    "{dd}-{mon}-{yy}",
    "{d} {month} {year}",
    "{month} {d}, {year}",
    "{abbreviated} {d}, {year}",
    "{th} of {month} {year}",
    "{th} {mon} '{yy}",
    "the {th} of {month}, {year}",
    "{weekday}, {d} {month} {year}",
    "{wd}, {dd} {mon} {year}",
    "{wd} {th} of {abbreviated} {year}",
    "{weekday}, {month} {th}, {yy}",
    "{year} {month} {d}",
)
HELD_OUT_FORMATS = ("{wd} {mon} {dd} {year}", "{month} the {th}, {year}")
"""Formats never to be trained on: nothing in them is new but the order."""

PADDING, START, END = 0, 1, 2
ALPHABET = "".join(
    sorted({*string.digits, *" ',-./"} | {c for w in (*MONTHS, *WEEKDAYS, "the of st") for c in w.lower() + w.upper()})
)
SOURCE_LENGTH = len("Wednesday, September 23rd, 94")  # none is longer
TARGET_LENGTH = len("1994-09-03") + 1  # with its end
VOCABULARY_SIZE = END + 1 + len(ALPHABET)


class DatePair(NamedTuple):
    """A date as somebody wrote it, the same in ISO 8601, and the format."""

    text: str
    iso: str
    form: str


def fields(date: datetime.date, september="Sep") -> dict[str, str]:
    """What a format may name: a date in pieces.

    >>> fields(datetime.date(1994, 9, 3), "Sept")["abbreviated"]
    'Sept.'
    """
    month, weekday = MONTHS[date.month - 1], WEEKDAYS[date.weekday()]
    mon = september if date.month == 9 else month[:3]
    return {
        "d": str(date.day),
        "dd": f"{date.day:02}",
        "th": f"{date.day}{ORDINALS.get(date.day, 'th')}",
        "m": str(date.month),
        "mm": f"{date.month:02}",
        "month": month,
        "mon": mon,
        "abbreviated": mon if mon == month else f"{mon}.",  # May is not
        "year": f"{date.year:04}",
        "yy": f"{date.year % 100:02}",
        "weekday": weekday,
        "wd": weekday[:3],
    }


def write(date: datetime.date, form: str, random: np.random.Generator) -> str:
    """The date in a format, one in four in lower case and one in four in upper case; September is Sep or Sept."""
    text = form.format_map(fields(date, random.choice(("Sep", "Sept"))))
    return (text, text, text.lower(), text.upper())[random.integers(4)]


def split_dates(*counts: int, seed: int = 0) -> list[list[datetime.date]]:
    """Disjoint lists of so many dates each, drawn from all between FIRST and LAST.

    Raises:
        ValueError: more dates than there are, or a count that is no whole number of at least 0.
    """
    for count in counts:
        checks.integer("count", count, min_value=0)
    days = (LAST - FIRST).days + 1
    if sum(counts) > days:
        raise ValueError(f"{sum(counts)} dates; expected at most {days}, from {FIRST} to {LAST}.")
    order = np.random.default_rng(seed).permutation(days)
    ends = np.cumsum(counts)
    return [
        [FIRST + datetime.timedelta(days=int(day)) for day in order[end - count : end]]
        for count, end in zip(counts, ends, strict=True)
    ]


def draw_pairs(dates: list[datetime.date], forms: tuple[str, ...], count: int, seed: int) -> list[DatePair]:
    """`count` pairs: the formats in turn, each time with one of the dates, drawn from the seed.

    >>> [pair.iso for pair in draw_pairs([datetime.date(1994, 9, 3)], FORMATS, 2, seed=0)]
    ['1994-09-03', '1994-09-03']
    """
    random = np.random.default_rng(seed)
    pairs = []
    for n in range(count):
        date, form = dates[random.integers(len(dates))], forms[n % len(forms)]
        pairs.append(DatePair(write(date, form, random), date.isoformat(), form))
    return pairs


def source_ids(texts: list[str]) -> np.ndarray:
    """Texts to ids `[B, S]`, int32, padded to `SOURCE_LENGTH`.

    Raises:
        ValueError: a text that is empty, too long, or has a character that no date is written with.
    """
    _check_texts(texts)
    ids = np.full((len(texts), SOURCE_LENGTH), PADDING, "int32")
    for row, text in zip(ids, texts, strict=True):
        if not 0 < len(text) <= SOURCE_LENGTH:
            raise ValueError(f"{text!r} has {len(text)} characters; expected a date of 1 to {SOURCE_LENGTH}.")
        for character in text:
            if character not in ALPHABET:
                raise ValueError(f"{text!r} has the character {character!r}; expected only those of {ALPHABET!r}.")
        row[: len(text)] = [END + 1 + ALPHABET.index(character) for character in text]
    return ids


def target_ids(dates: list[str]) -> tuple[np.ndarray, np.ndarray]:
    """ISO dates to what a decoder reads, from the start, and what it is to write, to the end: `[B, T]` each, int32.

    Raises:
        ValueError: a text that is no date such as 1994-09-03.
    """
    _check_texts(dates)
    for iso in dates:
        if not re.fullmatch("[0-9]{4}-[0-9]{2}-[0-9]{2}", iso):
            raise ValueError(f"{short_repr(iso)} is no ISO date; expected one such as 1994-09-03.")
    digits = np.array([[END + 1 + ALPHABET.index(character) for character in iso] for iso in dates], "int32")
    read = np.insert(digits, 0, START, axis=1)
    wanted = np.insert(digits, digits.shape[1], END, axis=1)
    return read, wanted


def _check_texts(texts):
    if not isinstance(texts, list | tuple) or not all(isinstance(text, str) for text in texts):
        raise ValueError(f"expected a list of texts, not {short_repr(texts)}.")


def text_of(ids: np.ndarray) -> str:
    """The characters of a row of ids up to the end or padding; one that is neither is shown as �."""
    characters = []
    for number in ids:
        if number in (END, PADDING):
            break
        characters.append("\ufffd" if number == START else ALPHABET[number - END - 1])
    return "".join(characters)
