"""A file from the network: over https, of a known size at most and a known sha256, there as a whole or not at all.

https only, redirects too     SECONDS for each answer, DEADLINE for all     sha256 before the name is given
"""

import contextlib
import hashlib
import http.client
import os
import time
import urllib.error
import urllib.request
from pathlib import Path

from keras_seq.tokenizers.tokenizer_io import write_bytes

SECONDS, DEADLINE = 30, 600
CHUNK = 1 << 16


class DownloadError(ValueError):
    """What came is not what was asked for, or nothing came."""


class HttpsOnly(urllib.request.HTTPRedirectHandler):
    """Follows redirects, but to https only."""

    def redirect_request(self, request, file, code, message, headers, new):
        _check(new)
        return super().redirect_request(request, file, code, message, headers, new)


def download(url: str, path: str | os.PathLike[str], sha256: str, size: int, opener=None) -> bytes:
    """Fetches a file and keeps it.

    Args:
        url: where it is, over https.
        path: where it is to be kept; written under a temporary name until it is whole and checked.
        sha256: of its bytes.
        size: the bytes it has; not one more is read.
        opener: what opens it, as `urllib.request.build_opener` makes it.

    Returns:
        The bytes.

    Raises:
        DownloadError: another protocol, here or on the way; no answer in time; more or fewer bytes than `size`, or
            others than promised. Nothing is at `path` then that was not there before.
        OSError: it cannot be kept at `path`.
    """
    _check(url)
    opener = opener or urllib.request.build_opener(HttpsOnly)
    until = time.monotonic() + DEADLINE
    data = bytearray()
    try:
        with contextlib.closing(opener.open(url, timeout=SECONDS)) as answer:
            while len(data) <= size and (chunk := answer.read1(CHUNK)):
                data += chunk
                if time.monotonic() > until:
                    raise DownloadError(f"{url} took longer than {DEADLINE} seconds")
    except (urllib.error.URLError, http.client.HTTPException, OSError) as error:
        reason = getattr(error, "reason", None) or error
        raise DownloadError(f"{url} could not be read ({reason})") from error
    if len(data) != size:
        more = "more than" if len(data) > size else "only"
        raise DownloadError(f"{url} has {more} {min(size, len(data))} bytes; expected {size}")
    found = hashlib.sha256(data).hexdigest()
    if found != sha256:
        raise DownloadError(f"{url} has the sha256 {found}; expected {sha256}")
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_bytes(path, data)
    return bytes(data)


def _check(url):
    if not url.lower().startswith("https://"):
        raise DownloadError(f"{url} is not https")
