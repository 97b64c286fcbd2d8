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

from keras_seq.atomic_files import write_bytes

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
