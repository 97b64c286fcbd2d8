"""Generate pairs of a date in one of many formats and in ISO 8601, for a translation task.

    "Sat 3rd of Sept. 1994"  ->  "1994-09-03"             from 1950-01-01 to 2049-12-31

No text is ambiguous. With dots the day comes first, with slashes the month, and a leading year of four digits is
followed by the month; other orders have the month as a word. A year of two digits is between 1950 and 2049.

ids:  0 padding, 1 start, 2 end, then the characters.   source = text,   target = start, 1994-09-03, end
"""

import datetime
import itertools
import re
import string
from typing import NamedTuple

import numpy as np

from keras_seq import checks
from keras_seq.checks import short_repr

MIN_DATE, MAX_DATE = datetime.date(1950, 1, 1), datetime.date(2049, 12, 31)
MONTHS = (
    *("January", "February", "March", "April", "May", "June", "July"),
    *("August", "September", "October", "November", "December"),
)
WEEKDAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
ORDINALS = {1: "st", 2: "nd", 3: "rd", 21: "st", 22: "nd", 23: "rd", 31: "st"}

FORMATS = (  # the names in braces are those of `format_fields`
    *("{d}.{m}.{year}", "{dd}.{mm}.{yy}", "{m}/{d}/{year}", "{mm}/{dd}/{yy}", "{year}/{mm}/{dd}", "{year}{mm}{dd}"),
    *("{dd}-{mon}-{yy}", "{d} {month} {year}", "{month} {d}, {year}", "{abbreviated} {d}, {year}"),
    *("{th} of {month} {year}", "{th} {mon} '{yy}", "the {th} of {month}, {year}", "{weekday}, {d} {month} {year}"),
    *("{wd}, {dd} {mon} {year}", "{wd} {th} of {abbreviated} {year}", "{weekday}, {month} {th}, {yy}"),
    "{year} {month} {d}",
)
HELD_OUT_FORMATS = ("{wd} {mon} {dd} {year}", "{month} the {th}, {year}")
"""Formats not to train on: only the order of their fields is new."""

PADDING, START, END = 0, 1, 2
ALPHABET = "".join(
    sorted({*string.digits, *" ',-./"} | {c for w in (*MONTHS, *WEEKDAYS, "the of st") for c in w.lower() + w.upper()})
)
SOURCE_LENGTH = len("Wednesday, September 23rd, 94")  # the longest text
TARGET_LENGTH = len("1994-09-03") + 1  # with the end id
VOCABULARY_SIZE = END + 1 + len(ALPHABET)


class DatePair(NamedTuple):
    """A date as a text in some format, in ISO 8601, and the format."""

    text: str
    iso: str
    format: str


def format_fields(date: datetime.date, september: str = "Sep") -> dict[str, str]:
    """Return the fields that a format may use.

    >>> format_fields(datetime.date(1994, 9, 3), "Sept")["abbreviated"]
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
        "abbreviated": mon if mon == month else f"{mon}.",  # "May" is not an abbreviation
        "year": f"{date.year:04}",
        "yy": f"{date.year % 100:02}",
        "weekday": weekday,
        "wd": weekday[:3],
    }


def format_date(date: datetime.date, format: str, random: np.random.Generator) -> str:
    """Write a date in a format, in lower or upper case with a probability of 1/4 each."""
    text = format.format_map(format_fields(date, random.choice(("Sep", "Sept"))))
    return (text, text, text.lower(), text.upper())[random.integers(4)]


def split_dates(*counts: int, seed: int = 0) -> list[list[datetime.date]]:
    """Draw disjoint random lists of dates from MIN_DATE to MAX_DATE."""
    for count in counts:
        checks.integer("count", count, min_value=0)
    days = (MAX_DATE - MIN_DATE).days + 1
    if sum(counts) > days:
        raise ValueError(f"{sum(counts)} dates; expected at most {days}, from {MIN_DATE} to {MAX_DATE}.")
    order = np.random.default_rng(seed).permutation(days)[: sum(counts)].tolist()
    dates = iter([MIN_DATE + datetime.timedelta(days=day) for day in order])
    return [[*itertools.islice(dates, count)] for count in counts]


def draw_pairs(dates: list[datetime.date], formats: tuple[str, ...], count: int, seed: int) -> list[DatePair]:
    """Draw pairs with the formats in turn and a random date each.

    >>> [pair.iso for pair in draw_pairs([datetime.date(1994, 9, 3)], FORMATS, 2, seed=0)]
    ['1994-09-03', '1994-09-03']
    """
    random = np.random.default_rng(seed)
    pairs = []
    for n in range(count):
        date, format = dates[random.integers(len(dates))], formats[n % len(formats)]
        pairs.append(DatePair(format_date(date, format, random), date.isoformat(), format))
    return pairs


def source_ids(texts: list[str]) -> np.ndarray:
    """Convert texts to ids `[B, S]`, int32, padded to `SOURCE_LENGTH`."""
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
    """Convert ISO dates to the inputs of a decoder, which begin with START, and its targets, which end with END."""
    _check_texts(dates)
    for iso in dates:
        if not re.fullmatch("[0-9]{4}-[0-9]{2}-[0-9]{2}", iso):
            raise ValueError(f"{short_repr(iso)} is not an ISO date; expected one such as 1994-09-03.")
    digits = np.array([[END + 1 + ALPHABET.index(character) for character in iso] for iso in dates], "int32")
    inputs = np.insert(digits, 0, START, axis=1)
    targets = np.insert(digits, digits.shape[1], END, axis=1)
    return inputs, targets


def _check_texts(texts):
    if not isinstance(texts, list | tuple) or not all(isinstance(text, str) for text in texts):
        raise ValueError(f"{short_repr(texts)} is not a list of texts.")


def decode_ids(ids: np.ndarray) -> str:
    """Convert ids `[N]` to a text, up to the first END or padding; START becomes �."""
    ids = itertools.takewhile(lambda id: id not in (END, PADDING), ids)
    return "".join("\ufffd" if id == START else ALPHABET[id - END - 1] for id in ids)
