"""Give a job that runs several times the same standard input at each run.

=========================  ============================================================================================
standard input             what each start has
=========================  ============================================================================================
a pipe, a socket           a pipe with all that came until then, and then with what still comes; the bytes are kept in a
                           file without a name
a file                     the first start has the file itself; each other start has its own place in the file, which
                           begins where the first start began
a terminal, /dev/null,     standard input itself, because what is typed cannot be given again
another device, none
=========================  ============================================================================================

Nothing is read before the job's first start. After that at most as much as one pipe can buffer is read before the job
reads it.
"""

from __future__ import annotations

import contextlib
import os
import select
import stat
import tempfile
import threading
from collections.abc import Iterator, Mapping

from logparse.errors import InputError

_CHUNK, _LOOK_S = 1 << 16, 0.05


class KeptInput:
    """Copies the standard input of this process, so that several runs of a job can each read it from its beginning.

    The runs may also happen at the same time. ``source`` is the file descriptor.
    """

    def __init__(self, source: int = 0) -> None:
        self._source, self._starts = source, 0
        self._kept = self._from = -1
        self._size, self._ended = 0, False
        self._lock = threading.Lock()
        self._lost = ""
        try:
            mode = os.fstat(source).st_mode
        except OSError:  # it is closed
            mode = 0
        self._flows = stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode)
        if stat.S_ISREG(mode):
            with contextlib.suppress(OSError):
                self._from = os.lseek(source, 0, os.SEEK_CUR)

    @contextlib.contextmanager
    def given(self) -> Iterator[Mapping[int, int]]:
        """Context that yields the standard input for one run of the job, as ``{0: file descriptor}``.

        ``{}`` means the standard input of this process. Raises InputError if the input cannot be read a second time.
        """
        self._starts += 1
        if self._flows:
            yield from self._fed()
        elif self._from >= 0 and self._starts > 1:
            try:
                again = os.open(f"/proc/self/fd/{self._source}", os.O_RDONLY)
            except OSError as error:
                raise InputError(
                    f"standard input cannot be given to the job a second time: {error.strerror}"
                ) from error
            try:
                os.lseek(again, self._from, os.SEEK_SET)
                yield {0: again}
            finally:
                # The file descriptor is valid until the context ends.
                os.close(again)
        else:
            # The job uses the standard input of this process.
            yield {}

    def _fed(self) -> Iterator[Mapping[int, int]]:
        if self._lost:
            raise InputError(
                f"standard input cannot be given to the job a second time, because it could not be stored: {self._lost}"
            )
        read, write = os.pipe()
        over = threading.Event()
        feeder = threading.Thread(target=self._feed, args=(write, over), name="logparse-input", daemon=True)
        feeder.start()
        try:
            yield {0: read}
        finally:
            over.set()
            with contextlib.suppress(OSError):
                os.close(read)
            feeder.join()

    def _feed(self, write: int, over: threading.Event) -> None:
        """Send logparse's standard input to the job: first the part that was read earlier and kept, then new data.

        This ends when the input ends, when the job closes its standard input, or when the job has ended.
        """
        os.set_blocking(write, False)
        writable = select.poll()
        writable.register(write, select.POLLOUT)
        at, left = 0, b""
        with contextlib.suppress(BrokenPipeError):
            while not over.is_set():
                state = writable.poll(1000 * _LOOK_S)
                if not state:
                    continue
                if not left:
                    data = self._data(at)
                    if data is None:
                        continue
                    if not data:
                        break
                    at, left = at + len(data), data
                with contextlib.suppress(BlockingIOError):
                    left = left[os.write(write, left) :]
        os.close(write)

    def _data(self, at: int) -> bytes | None:
        """Return the next piece of the input after the first ``at`` bytes.

        Returns ``b""`` at the end of the input, and None if nothing more has arrived yet.
        """
        with self._lock:
            if at < self._size:
                return os.pread(self._kept, _CHUNK, at)
            if self._ended:
                return b""
            if not select.select([self._source], [], [], _LOOK_S)[0]:
                return None
            try:
                data = os.read(self._source, _CHUNK)
            except BlockingIOError:
                return None
            except OSError:
                data = b""
            self._ended = not data
            self._keep(data)
            return data

    def _keep(self, data: bytes) -> None:
        try:
            if self._kept < 0:
                with tempfile.TemporaryFile(prefix="logparse-") as file:
                    self._kept = os.dup(file.fileno())
            while data:
                written = os.pwrite(self._kept, data, self._size)
                self._size, data = self._size + written, data[written:]
        except OSError as error:
            self._lost = error.strerror or "it cannot be written"
