"""Opens files, folders, archives and compressed files that users name, to any depth."""

import bz2
import codecs
import gzip
import lzma
import os
import re
import shutil
import stat
import subprocess
import sys
import tarfile
import tempfile
import time
import zipfile
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from functools import cached_property, partial
from pathlib import Path
from typing import IO, Any

from oddrank.errors import OddrankError
from oddrank.inputs import HEAD, Item, Notes, envelopes, is_pickle, unix_time

# Unpacked copies: at most so many bytes, and at most half of the free space of the folder.
_MOST_UNPACKED = 64 << 30
# Unpacked copies of a file may be so many times as large; small files' copies so many bytes.
_MOST_GROWTH, _MAY_GROW_TO = 1000, 64 << 20
_MOST_FILES = 1 << 20
_DEEPEST = 4  # archives inside archives
_CHUNK = 1 << 20
_HEAD_OF_PICKLE = 512  # they come by the thousand, and their readers need no more
_MOST_WORDS = 200  # of a command's error text
# Modules that unpack raise more kinds of errors than they document: struct.error, RuntimeError (a
# password), NotImplementedError (a method), OverflowError, ZstdError, ...
_BROKEN = Exception
_GROWS = (
    "unpacked only in part, as all after it that grows:"
    f" over {_MAY_GROW_TO >> 20} MiB and {_MOST_GROWTH} times the packed size"
)
_ZSTD = b"\x28\xb5\x2f\xfd"
# Unpackers' errors on a file that is cut off, or has something behind its end: content before it
# has been checked, or is right as far as it goes. Behind other damage it may be anything.
_CUT = ("end-of-stream", "premature end", "unexpected end of data", "Not a gzipped file")
_MOST_ZEROS = 64 << 20
_ZEROS = re.compile(rb"\0+")
# Control characters that terminals and logs have no use for.
_CONTROLS = bytes(set(range(32)) - set(b"\0\a\b\t\n\v\f\r\x1b"))
EMPTY = "left out: it is empty"
Records = Callable[[bytes], Callable[[Path], Iterator[bytes]] | None]
"""Returns the converter to lines for a binary file that begins so; None for other files."""


@contextmanager
def opened(
    paths: Sequence[str], notes: Notes, *, peel: bool = True, records: Records | None = None
) -> Iterator[list[Item]]:
    """Yields all files below the paths; unpacked copies live until the end. "-" is stdin.

    peel: removes envelopes around lines. records: converts a binary file given by name.

    OddrankError if a path does not exist. Unreadable files become lines of `notes`.
    """
    for path in paths:
        if path != "-" and not os.path.exists(path):
            raise OddrankError(f"there is no {path!r}; give files or folders that a job left")
    notes.named = frozenset("stdin" if path == "-" else str(Path(path)) for path in paths)
    with ExitStack() as copies:
        yield list(_Unpacker(copies, notes, peel, records).items(paths))


@contextmanager
def texts(
    paths: Sequence[str], notes: Notes, *, peel: bool = True, may_be_empty: bool = False,
    records: Records | None = None,
) -> Iterator[list[Item]]:  # fmt: skip
    """Yields the logs below the paths, as opened() does. may_be_empty: they grow.

    OddrankError if there is none.
    """
    with opened(paths, notes, peel=peel, records=records) as items:
        found = []
        for item in items:
            # A folder may hold other things than logs.
            if not item.size and not may_be_empty:
                notes.add(item, EMPTY, lost=False)
            elif item.size and not is_text(item):
                notes.add(item, "left out: it is binary", lost=item.name in notes.named)
            else:
                found.append(item)
        if not found:
            why = f" ({notes.lines[0]})" if notes.lines else ""
            raise OddrankError(f"there is no log in what was given{why}; give text files of a job")
        yield found


def is_text(item: Item) -> bool:
    """Returns whether a file looks like text.

    A text may hold blocks of zero bytes: where a log was truncated under its writer, or NFS lost a
    write. Binary files hold them more often than lines end, and other control characters.
    """
    head = item.head
    if b"\0" not in head:
        return item.size > 0
    if not head.strip(b"\0"):
        head = _behind_zeros(item)
    rest = head.replace(b"\0", b"")
    controls = len(rest) - len(rest.translate(None, _CONTROLS))
    return len(_ZEROS.findall(head)) <= head.count(b"\n") and controls * 100 < len(rest)


def _behind_zeros(item: Item) -> bytes:
    """Returns a file's content behind zero bytes at its front; b"" if there is none, or late."""
    with suppress(OSError), open(item.path, "rb") as file:
        while file.tell() < _MOST_ZEROS:
            with suppress(AttributeError):  # Linux only: skips holes
                file.seek(file.tell(), os.SEEK_DATA)
            block = file.read(_CHUNK)
            if not block or block.strip(b"\0"):
                return block.lstrip(b"\0")[:HEAD]
    return b""


def _chunks(source: Any) -> Iterator[bytes]:
    """Yields a file's content up to its damage, which read() would not give."""
    read = getattr(source, "read1", source.read)
    return iter(partial(read, _CHUNK), b"")


class _Unpacker:
    def __init__(self, undo: ExitStack, notes: Notes, peel: bool, records: Records | None) -> None:
        self._undo, self._notes, self._peel, self._records = undo, notes, peel, records
        self._left = _MOST_UNPACKED
        self._room = 0  # bytes by which the copies of a file given may still grow
        self._copies = self._files = 0

    @cached_property
    def _folder(self) -> Path:
        """The folder of the copies. Most evidence needs none, and there may be no room for one."""
        made = tempfile.TemporaryDirectory(prefix="oddrank-")
        folder = Path(self._undo.enter_context(made))
        self._left = min(self._left, shutil.disk_usage(folder).free // 2)
        return folder

    def items(self, paths: Iterable[str]) -> Iterator[Item]:
        for path in paths:
            if path == "-":
                copy = self._copy(_chunks(sys.stdin.buffer), "stdin")
                yield from self._copied("stdin", copy, 0)
            elif Path(path).is_fifo():  # <(ssh node7 dmesg)
                # Without waiting for a writer: where there is none, the pipe is at its end.
                with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK), "rb") as pipe:
                    os.set_blocking(pipe.fileno(), True)
                    copy = self._copy(_chunks(pipe), path)
                yield from self._copied(path, copy, 0)
            else:
                for file in self._walk(Path(path)):
                    yield from self._file(str(file), file, 0)

    def _walk(self, path: Path) -> Iterator[Path]:
        if not path.is_dir():
            yield path
            return
        for folder, inner, names in os.walk(
            path, onerror=lambda e: self._notes.add(str(e.filename), f"not readable: {e.strerror}")
        ):
            inner.sort()
            for name in sorted(names):
                if not _is_packed_twin(folder, inner, name):
                    yield Path(folder, name)

    def _file(self, name: str, path: Path, depth: int) -> Iterator[Item]:
        self._files += 1
        if self._files > _MOST_FILES:
            if self._files == _MOST_FILES + 1:
                why = f"left out with all after it: more than {_MOST_FILES} files"
                self._notes.add(name, why)
            return
        try:
            found = path.stat()
            if not stat.S_ISREG(found.st_mode):
                self._notes.add(
                    name, "left out: it is no regular file", lost=name in self._notes.named
                )
                return
            with path.open("rb") as file:
                head = file.read(_HEAD_OF_PICKLE)
                pickled = is_pickle(head)
                head += b"" if pickled else file.read(HEAD - len(head))
        except OSError as error:
            self._notes.add(name, f"not readable: {error.strerror}")
            return
        if depth == 0:
            self._room = max(_MOST_GROWTH * found.st_size, _MAY_GROW_TO)
        unpack = packing(head)
        if self._records and name in self._notes.named and (lines := self._records(head)):
            unpack = _compressed_by(lambda path: nullcontext(lines(path)), lambda opened: opened)
        if unpack is None:
            peel = self._peel and depth < _DEEPEST and not pickled
            envelope = envelopes.found(head) if peel else None
            copy = self._peeled(envelope, name, path) if envelope else None
            if copy is None:
                yield Item(name, path, found.st_size, head, written_ns=found.st_mtime_ns)
            else:
                yield from self._file(name, copy, depth + 1)
        elif depth >= _DEEPEST:
            self._notes.add(name, f"left out: packed more than {_DEEPEST} times")
        else:
            try:
                yield from unpack(self, name, path, depth + 1)
            except _BROKEN as error:
                why = f"unpacked only in part: {error or type(error).__name__}"
                self._notes.add(name, why)

    def _copied(self, name: str, copy: Path | None, depth: int) -> Iterator[Item]:
        """Yields the files in a copy. An empty copy is a note; None: it has one already."""
        if copy is None:
            return
        if copy.stat().st_size:
            yield from self._file(name, copy, depth)
        else:
            self._notes.add(name, EMPTY, lost=False)

    def _peeled(self, envelope: envelopes.Envelope, name: str, path: Path) -> Path | None:
        """Copies a file without an envelope; None if it can't be taken off."""
        left = [0]
        copy = self._copy(envelope.lines(path, left), name, path.stat().st_mtime)
        if copy is None or not copy.stat().st_size:
            return None
        if left[0]:
            plural = "s do" if left[0] > 1 else " does"
            self._notes.add(name, f"{left[0]} line{plural} not fit its envelope ({envelope.name}),"
                                  " read as it stands", lost=False)  # fmt: skip
        return copy

    def _broken(self, name: str, error: Exception) -> bool:
        """Notes why a file is not unpacked; returns whether its copy is right up to the error."""
        why = str(error) or type(error).__name__
        cut = getattr(error, "errno", None) is not None or any(words in why for words in _CUT)
        how = "unpacked only in part" if cut else "left out: it is damaged"
        if isinstance(error, (ImportError, FileNotFoundError)):  # the unpacker is missing
            how = "left out"
        self._notes.add(name, f"{how}: {why}")
        return cut

    def _copy(
        self, chunks: Iterable[bytes], name: str, changed: float | None = None,
        packed: int | None = None,
    ) -> Path | None:  # fmt: skip
        """Copies chunks to a file of the folder, until their end or an error.

        Returns None, and adds a note, if an error left nothing that can be trusted.

        changed: Unix time that the copy keeps. It is the time of a dump. packed: their packed size;
        None: they are not packed.
        """
        self._copies += 1
        try:
            path = self._folder / str(self._copies)
        except OSError as error:
            self._notes.add(name, f"not unpacked: {error.strerror}", lost=True)
            return None
        room = self._left if packed is None else packed + max(self._room, 0)
        whole, right = False, True
        with path.open("wb", _CHUNK) as file:
            try:
                for chunk in chunks:
                    self._left -= len(chunk)
                    room -= len(chunk)
                    if self._left < 0:
                        why = "unpacked only in part: too large for the disk here"
                        self._notes.add(name, why)
                        break
                    if room < 0:
                        if self._room >= 0:  # else it has been said
                            self._notes.add(name, _GROWS)
                        file.write(chunk[:room])
                        break
                    file.write(chunk)
                else:
                    whole = True
            except _BROKEN as error:
                right = self._broken(name, error)
        if packed is not None:
            self._room = min(self._room, room)
        changed = unix_time(changed)
        if changed is not None:
            os.utime(path, (changed, changed))
        return path if whole or (right and path.stat().st_size) else None

    def compressed(
        self, opener: Callable[[Path], Any], chunks: Callable[[Any], Iterable[bytes]], name: str,
        path: Path, depth: int,
    ) -> Iterator[Item]:  # fmt: skip
        copy, found = None, path.stat()
        try:
            with opener(path) as source:
                copy = self._copy(chunks(source), name, found.st_mtime, found.st_size)
        except _BROKEN as error:  # zstd says only at its end that the file is broken
            right = self._broken(name, error)
            copy = copy if right and copy and copy.stat().st_size else None
        yield from self._copied(name, copy, depth)

    def utf16(self, name: str, path: Path, depth: int) -> Iterator[Item]:
        """Copies a text of two bytes a character, as Windows' shells redirect it, as UTF-8."""
        with path.open("r", encoding="utf-16", errors="replace", newline="") as source:
            chunks = iter(partial(source.read, _CHUNK), "")
            encoded = (chunk.encode(errors="replace") for chunk in chunks)
            copy = self._copy(encoded, name, path.stat().st_mtime)
        yield from self._copied(name, copy, depth)

    def tar(self, name: str, path: Path, depth: int) -> Iterator[Item]:
        empty = 0
        with tarfile.open(path, "r:") as archive:
            for member in archive:
                own = f"{name}:{member.name}"
                if member.isfile() and member.size == 0:
                    empty += 1
                elif member.isfile() and (source := archive.extractfile(member)):
                    # For a sparse file the archive holds its parts alone.
                    parts: Any = member.sparse or [(0, member.size)]
                    packed = min(sum(size for _, size in parts), path.stat().st_size)
                    copy = self._copy(_chunks(source), own, member.mtime, packed)
                    yield from self._copied(own, copy, depth)
        self._say_empty(name, empty)

    def zip(self, name: str, path: Path, depth: int) -> Iterator[Item]:
        empty = 0
        with zipfile.ZipFile(path) as archive:
            for member in archive.infolist():
                own = f"{name}:{member.filename}"
                if member.is_dir():
                    continue
                if member.file_size == 0:
                    empty += 1
                    continue
                try:
                    # The clock of a zip has no time zone.
                    changed = time.mktime((*member.date_time, 0, 0, -1))
                    with archive.open(member) as source:
                        copy = self._copy(_chunks(source), own, changed, member.compress_size)
                except _BROKEN as error:  # the other members may be intact
                    self._notes.add(own, f"not unpacked: {error}")
                    continue
                yield from self._copied(own, copy, depth)
        self._say_empty(name, empty)

    def _say_empty(self, name: str, count: int) -> None:
        if count:
            self._notes.add(name, f"{count} empty file{'s' if count > 1 else ''} in it", lost=False)


def _is_packed_twin(folder: str, inner: Collection[str], name: str) -> bool:
    """Returns whether a file is the archive that `oddrank collect` made of a folder beside it."""
    stem, tar, _ = name.partition(".tar.")
    if not tar or stem not in inner:
        return False
    with suppress(OSError), open(Path(folder, stem, "manifest.json"), "rb") as file:
        return b'"oddrank.collect/' in file.read(100)
    return False


_Unpack = Callable[[_Unpacker, str, Path, int], Iterator[Item]]


def packing(head: bytes) -> _Unpack | None:
    """Returns how to unpack a file that begins so; None if it is not packed."""
    if head[257:262] == b"ustar":
        return _Unpacker.tar
    if head.startswith(b"PK\x03\x04"):
        return _Unpacker.zip
    if head[:2] in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE) and head[2:4] != b"\0\0":
        return _Unpacker.utf16
    for magic, opener in _OPENERS.items():
        if head.startswith(magic):
            return _compressed_by(opener)
    return None


def _compressed_by(
    opener: Callable[[Path], Any], chunks: Callable[[Any], Iterable[bytes]] = _chunks
) -> _Unpack:
    return lambda self, *where: self.compressed(opener, chunks, *where)


@contextmanager
def _zstd(path: Path) -> Iterator[IO[bytes]]:
    """Reads the output of an unpacking command. OSError at the end if the command failed."""
    if shutil.which("zstd") is None:
        raise FileNotFoundError("it takes the command zstd")
    with tempfile.TemporaryFile() as errors, subprocess.Popen(
        ["zstd", "-dcq", "--", str(path)],
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=errors,
    ) as process:  # fmt: skip
        assert process.stdout is not None
        try:
            yield process.stdout
            left = process.stdout.read(1)  # the reader had enough: nothing failed
            if not left and process.wait() != 0:
                errors.seek(0)
                said = errors.read(_MOST_WORDS).decode(errors="replace").strip()
                raise OSError(said or f"zstd ended with {process.returncode}")
        finally:
            process.kill()


_OPENERS: dict[bytes, Callable[[Path], Any]] = {
    b"\x1f\x8b": gzip.open,
    b"BZh": bz2.open,
    b"\xfd7zXZ\x00": lzma.open,
    _ZSTD: _zstd,
}
