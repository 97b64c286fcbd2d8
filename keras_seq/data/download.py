"""Download a file over https, with its size and sha256 known in advance, and save it atomically.

https only, also after redirects     TIMEOUT_SECONDS per response, DEADLINE_SECONDS in total     sha256 before saving
"""

import contextlib
import hashlib
import http.client
import os
import time
import urllib.error
import urllib.request
from pathlib import Path

import numpy as np

from keras_seq import checks
from keras_seq.files import write_bytes
from keras_seq.tokenizers.text import check_text

TIMEOUT_SECONDS, DEADLINE_SECONDS = 30, 600
CHUNK_BYTES = 1 << 16


class DownloadError(ValueError):
    """A download failed, or gave other bytes than expected."""


class HttpsOnly(urllib.request.HTTPRedirectHandler):
    """Follow redirects to https URLs only."""

    def redirect_request(self, request, file, code, message, headers, new_url):
        """Return the request for a redirect; raise a DownloadError for a URL that is not https."""
        _check_https(new_url)
        return super().redirect_request(request, file, code, message, headers, new_url)


def download(
    url: str,
    path: str | os.PathLike[str],
    sha256: str,
    size: int,
    opener: urllib.request.OpenerDirector | None = None,
) -> bytes:
    """Download a file and save it.

    Args:
        url: https URL of the file.
        path: Path to save it to, atomically and after the checks; missing folders are created.
        sha256: Expected digest of its bytes, in hexadecimal.
        size: Expected size in bytes; reading stops after one chunk more.
        opener: Opens the URL; by default, one that follows redirects to https only.

    Returns:
        The bytes.

    Raises:
        DownloadError: The URL or a redirect is not https, the server does not respond in time, or the size or the
            digest differs. `path` is unchanged then.
        OSError: The file cannot be saved.
    """
    _check_https(url)
    opener = opener or urllib.request.build_opener(HttpsOnly)
    deadline = time.monotonic() + DEADLINE_SECONDS
    data = bytearray()
    try:
        with contextlib.closing(opener.open(url, timeout=TIMEOUT_SECONDS)) as response:
            while len(data) <= size and (chunk := response.read1(CHUNK_BYTES)):
                data += chunk
                if time.monotonic() > deadline:
                    raise DownloadError(f"{url} took longer than {DEADLINE_SECONDS} seconds")
    except (urllib.error.URLError, http.client.HTTPException, OSError) as error:
        reason = getattr(error, "reason", None) or error
        raise DownloadError(f"{url} could not be read ({reason})") from error
    if len(data) != size:
        comparison = "more than" if len(data) > size else "only"
        raise DownloadError(f"{url} has {comparison} {min(size, len(data))} bytes; expected {size}")
    actual_sha256 = hashlib.sha256(data).hexdigest()
    if actual_sha256 != sha256:
        raise DownloadError(f"{url} has the sha256 {actual_sha256}; expected {sha256}")
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_bytes(path, data)
    return bytes(data)


def _check_https(url):
    if not url.lower().startswith("https://"):
        raise DownloadError(f"{url} is not https")


# Measure how much of a validation text occurs verbatim in its training text, and can be memorized.
#
#     share = characters of the validation text in a substring of length L that also occurs in the training text / all
#
# Substrings are compared by a 64-bit hash, a polynomial in their characters, computed for all positions at once: with
# h_n(i) the hash of the n characters from position i on,
#
#     h_2n(i) = h_n(i) b^n + h_n(i + n)        six vector operations for L = 64
#
# The training text is processed in chunks, so memory does not grow with its length. (Lee et al., 2022, "Deduplicating
# Training Data Makes Language Models Better", find such substrings with suffix arrays.)


BASE = 0x9E3779B97F4A7C15  # odd, with well-mixed bits
CHUNK_CHARS = 1 << 20  # characters hashed at once
FILTER_BITS = 4  # one in 16 to 32 entries of the prefix filter is True
MAX_VALIDATION_CHARS = 1 << 21  # further characters of the validation text are ignored


def verbatim_overlap(train: str, validation: str, length: int = 64) -> float:
    """Compute the fraction of a validation text that is copied from its training text.

    Args:
        train: The training text.
        validation: The validation text; only its first 2,097,152 characters are used.
        length: L, the minimum length of a copy in characters; a power of 2.

    Returns:
        The fraction of characters, from 0 to 1; 0 if one of the texts is shorter than `length`.

    Raises:
        ValueError: `length` is not a power of 2.
        TokenizerError: One of the arguments is not a text.

    >>> verbatim_overlap("to be, or not to be", "that is not to", length=4)
    0.5
    """
    check_text(train)
    check_text(validation)
    checks.integer("length", length, min_value=1)
    if length & (length - 1):
        raise ValueError(f"length={length}; expected a power of 2, such as 64.")
    hashes = _hashes(validation[:MAX_VALIDATION_CHARS], length)
    if not len(hashes):
        return 0.0
    order = np.argsort(hashes)
    sorted_hashes = hashes[order]
    is_copied = np.zeros(len(sorted_hashes), bool)
    shift = np.uint64(64 - FILTER_BITS - len(sorted_hashes).bit_length())
    prefix_filter = np.zeros(1 << (64 - int(shift)), bool)  # by the first bits of a hash: rejects most other hashes
    prefix_filter[sorted_hashes >> shift] = True
    for start in range(0, len(train), CHUNK_CHARS):
        train_hashes = _hashes(train[start : start + CHUNK_CHARS + length - 1], length)
        train_hashes = train_hashes[prefix_filter.take((train_hashes >> shift).view("int64"))]
        train_hashes = np.sort(train_hashes)  # sorted hashes are searched faster
        index = np.minimum(np.searchsorted(sorted_hashes, train_hashes), len(sorted_hashes) - 1)
        is_copied[index[sorted_hashes[index] == train_hashes]] = True
    # Of equal hashes only the first is marked above.
    copy_starts = order[is_copied[np.searchsorted(sorted_hashes, sorted_hashes)]]
    edges = np.zeros(len(hashes) + length, int)
    edges[copy_starts] += 1
    edges[copy_starts + length] -= 1
    return float(np.mean(np.cumsum(edges[:-1]) > 0))


def _hashes(text, length):
    """Compute the hash of the substring of `length` characters from each position on."""
    hashes = np.frombuffer(text.encode("utf-32-le"), "<u4").astype("uint64")
    hashed = 1  # characters in each hash
    while hashed < length:
        factor = np.uint64(pow(BASE, hashed, 1 << 64))
        hashes = hashes[:-hashed] * factor + hashes[hashed:] if len(hashes) > hashed else hashes[:0]
        hashed *= 2
    return hashes
