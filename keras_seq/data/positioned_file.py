"""Read a file by position: from several threads at once, without a position of its own."""

import os
import threading

from keras_seq.data.token_shards import TokenFilesError


def _seek_and_read(descriptor, size, position):
    with _SEEK_LOCK:
        os.lseek(descriptor, position, os.SEEK_SET)
        return os.read(descriptor, size)


_SEEK_LOCK = threading.Lock()
_pread = getattr(os, "pread", _seek_and_read)  # Windows has none


class PositionedFile:
    """A file that is read by position, and stays open as long as this object exists.

    Args:
        path: Path of the file.

    Raises:
        TokenFilesError: It cannot be read; in `read`, it is shorter than it was.
    """

    def __init__(self, path: str | os.PathLike[str]):
        self.path = path
        try:
            self.descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_BINARY", 0))
        except OSError as error:
            self.descriptor = None
            raise TokenFilesError(
                f"{path} can no longer be read ({error.strerror}): copy it again, or prepare the folder again."
            ) from None

    def read(self, position: int, size: int) -> bytes:
        """Return `size` bytes from a position on."""
        data = _pread(self.descriptor, size, position)
        while len(data) < size:
            if not (more := _pread(self.descriptor, size - len(data), position + len(data))):
                raise TokenFilesError(
                    f"{self.path} is shorter than it was: copy it again, or prepare the folder again."
                )
            data += more
        return data

    def __del__(self):
        """Close the file."""
        if self.descriptor is not None:
            os.close(self.descriptor)
