"""Files of data that are broken at random: each can be used or is refused, soon, and nothing else happens."""

import gzip
import io
import math
import random
import signal
import struct
import time
import warnings
import zipfile
from pathlib import Path
from unicodedata import category

import h5py
import malformed
import numpy as np
import pytest

from mu2mpi.cli import main
from mu2mpi.config.experiment import Experiment
from mu2mpi.data.opening import open_source
from mu2mpi.errors import InputError

SECONDS = 5

CELLS = (
    "", " ", "nan", "NA", "?", "inf", "-inf", "1e400", "-0", "1_0", "0x1", "1e-400", "\0", "\x1b[2J", '"',
    '""', '"a', "a\nb", "\r", ",", ";", "\t", "é", "\ufeff", "\ud800", "1,2", "9" * 30, "9" * 5000,
    "0" * 140_000, "True",
    "١", "²", "1 2", "#", ":", "1:2", "qid:1", "0:1", "-1:1", "1:nan", "10000001:1", "99999999999999999999:1",
)  # fmt: skip
KINDS = (
    "?", "i1", "u1", "<i2", ">i4", "<i8", "<u8", "<f2", "<f4", ">f8", "<c8", "S0", "S3", "<U0", "<U2", "V4",
    "O", "<f16", "M8[s]", "m8", "(2,)f4", "f4,i4", "nonsense", "a5", "",
)  # fmt: skip
SIZES = (-1, 0, 1, 2, 3, 39, 40, 41, 2**16, 2**31, 2**40, 2**63, 10**30)


def shape(chance: random.Random, most: int = SIZES[-1]) -> tuple[int, ...]:
    sizes = [40, 40, *(size for size in SIZES if size <= most)]
    return tuple(chance.choice(sizes) for _ in range(chance.randrange(4)))


def damaged(chance: random.Random, good: bytes) -> bytes:
    """Flip bytes, cut a file off, leave a part out, repeat one, or put something else there."""
    content = bytearray(good)
    for _ in range(chance.choice((1, 1, 2, 8))):
        place, other = (chance.randrange(len(content) + 1) for _ in range(2))
        match chance.randrange(6):
            case 0 | 1:
                content[place : place + 1] = bytes([chance.randrange(256)])
            case 2:
                del content[place:]
            case 3:
                del content[min(place, other) : min(max(place, other), min(place, other) + 64)]
            case 4:
                content[place:place] = content[other : other + 64]
            case _:
                number = struct.pack("<q", chance.choice((-1, 0, 2**31, 2**32, 2**62)))
                content[place : place + 8] = number
    return bytes(content)


def lines(chance: random.Random, suffix: str) -> bytes:
    """Put odd cells into a table."""
    packed = suffix.endswith("gz")
    good = malformed.content(suffix)
    rows = [
        line.split(" " if "svm" in suffix else ",")
        for line in (gzip.decompress(good) if packed else good).decode().split("\n")
    ]
    for _ in range(chance.choice((1, 1, 2, 5))):
        row = chance.choice(rows)
        cell = chance.choice(CELLS)
        match chance.randrange(5):
            case 0:
                row.append(cell)
            case 1:
                row.pop()
                row = row or rows.append([cell])
            case _:
                row[chance.randrange(len(row))] = cell
        rows = [row or [""] for row in rows]
    if chance.random() < 0.2:
        chance.shuffle(rows)
    end = chance.choice(("\n", "\n", "\n", "\r\n", "\r", "\n\n"))
    text = end.join((" " if "svm" in suffix else ",").join(row) for row in rows)
    content = text.encode(chance.choice(("utf-8", "utf-8", "utf-8", "utf-16", "utf-7")), "surrogatepass")
    return gzip.compress(content) if packed else content


def archive(chance: random.Random) -> bytes:
    """Write headers of numpy's format that have little to do with what follows them."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", chance.choice((zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED))) as file:
        for name in chance.sample(("features", "labels", "machine", "X", "y"), chance.randrange(1, 5)):
            size = chance.choice(((40,), (40, 3), shape(chance)))
            kind, in_columns = chance.choice(KINDS), chance.random() < 0.5
            text = f"{{'descr': {kind!r}, 'fortran_order': {in_columns}, 'shape': {size}, }}"
            text = (
                text
                if chance.random() < 0.8
                else chance.choice((text[:-9], text * 2, "\\w" + text, "{", text.replace("40", "40L")))
            )
            version = chance.choice(((1, 0), (1, 0), (2, 0), (3, 0), (9, 9)))
            length = struct.pack(
                "<H" if version == (1, 0) else "<I", chance.choice((len(text), len(text), 3, 65535))
            )
            body = random_bytes(chance, chance.choice((0, 40, 160, 320, 480, 960)))
            file.writestr(f"{name}.npy", b"\x93NUMPY" + bytes(version) + length + text.encode() + body)
    return buffer.getvalue()


def random_bytes(chance: random.Random, count: int) -> bytes:
    return chance.choice((bytes(count), chance.randbytes(count), bytes(k % 3 for k in range(count))))


def hdf5(chance: random.Random, path: Path) -> None:
    """Write datasets of any type, shape and layout, and what is no dataset."""
    with h5py.File(path, "w", libver=chance.choice(("earliest", "latest"))) as file:
        for name in chance.sample(
            ("features", "labels", "machine", "X", "y", "machine/a/X", "machine/a/y"), 4
        ):
            # For more chunks than these HDF5 writes a gigabyte to list them, or crashes.
            size = chance.choice(((40,), (40, 3), (40, 1), shape(chance, 2**16)[:2]))
            small = tuple(min(max(length, 0), 100) for length in size)
            chunks = tuple(min(max(length, 1), 16) for length in size) or None
            try:
                match chance.randrange(8):
                    case 0:
                        file[name] = h5py.SoftLink(chance.choice(("/", "/gone", f"/{name}", "/X")))
                    case 1:
                        file[name] = h5py.ExternalLink(chance.choice(("gone", "/dev/zero", "/tmp")), "/x")
                    case 2:
                        file[name] = h5py.Empty(chance.choice(("f4", "S3")))
                    case 3:
                        file[name] = np.array(
                            [chance.choice(("a", "b", "NA", "")) for _ in range(40)], dtype=object
                        )
                    case 4:
                        file.create_virtual_dataset(name, h5py.VirtualLayout(size, "f4"))
                    case 5 if chunks:
                        made = file.create_dataset(name, size, chance.choice(KINDS[:14]), chunks=chunks)
                        made[tuple(slice(chance.choice((0, 1, 3, 40))) for _ in size)] = 1
                    case _:
                        kind = np.dtype(chance.choice(KINDS[:14]))
                        content = random_bytes(chance, math.prod(small) * kind.itemsize)
                        values = np.frombuffer(content, kind).reshape(small)
                        file.create_dataset(name, data=values, chunks=chance.choice((None, chunks)))
            except Exception:  # what HDF5 does not write needs not be read
                pass
    if chance.random() < 0.3 and path.stat().st_size < 1 << 20:
        path.write_bytes(damaged(chance, path.read_bytes()))


def draw(chance: random.Random, folder: Path, number: int) -> Path:
    """Write a file that is broken in one of these ways."""
    suffix = chance.choice(malformed.SUFFIXES)
    path = folder / f"{number}.{suffix}"
    if chance.random() < 0.4:
        path.write_bytes(damaged(chance, malformed.content(suffix)))
    elif suffix == "h5":
        hdf5(chance, path)
    else:
        path.write_bytes(archive(chance) if suffix == "npz" else lines(chance, suffix))
    return path


def settings(chance: random.Random, folder: Path) -> dict[str, object]:
    """Return the path of a file, and now and then what it is asked for."""
    found: dict[str, object] = {"normalize": chance.choice(("none", "unit"))}
    if chance.random() < 0.2:
        found["features"] = chance.choice(
            ("a", "a,b", "a,a", "features", "machine", "label", "\x1b", "/", "..")
        )
    if chance.random() < 0.2:
        found["labels"] = chance.choice(("label", "labels", "machine", "3", "c", "."))
    if chance.random() < 0.2:
        found["missing_labels"] = "keep"
    return found


class Late(BaseException):
    """Something took too long."""


def use(path: Path, given: dict[str, object], test: Path | None) -> bool:
    """Open a file and read all of it as a run does; return whether it can be used."""
    given = given if test is None else {**given, "test": str(test)}
    try:
        source = open_source(Experiment(data=str(path), **given), verify=False)
        assert len(source.digest) == 32
        assert source.class_sizes.sum() == source.training_samples
        if source.has_owners:
            assert source.owner_sizes.sum() == source.training_samples
    except InputError as error:
        # What it says may repeat no more than a little of the file.
        if not 0 < len(str(error)) < 1000:
            raise ValueError(str(error)) from error
        return False
    with h5py.File(io.BytesIO(), "w") as result:
        result["label"] = np.array(source.class_names, dtype=object)
        assert tuple(result["label"].asstr()[()]) == source.class_names
    assert not any(category(letter) == "Cc" for letter in "".join(source.class_names))
    return True


def check(path: Path, given: dict[str, object], test: Path | None) -> bool:
    """Use a file, without a warning and soon."""

    def stop(*_: object) -> None:
        raise Late

    before, began = signal.signal(signal.SIGALRM, stop), time.monotonic()
    signal.alarm(SECONDS)
    try:
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            usable = use(path, given, test)
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)
    assert [str(warning.message) for warning in said] == []
    # Libraries may drop what is raised while they are at work.
    assert time.monotonic() - began < SECONDS
    return usable


@pytest.fixture(scope="module")
def imported() -> None:
    """Import what is imported at first use, which is not what is to be soon."""
    import sklearn.datasets  # noqa: F401

    import mu2mpi.data.formats.hdf5
    import mu2mpi.data.sources.user_file  # noqa: F401


@pytest.mark.usefixtures("imported")
@pytest.mark.parametrize("count", [500, pytest.param(4000, marks=pytest.mark.slow)])
def test_any_file_can_be_used_or_is_refused(chance, tmp_path, count):
    good = tmp_path / "good.csv"
    good.write_bytes(malformed.content("csv"))
    usable = 0
    for number in range(count):
        path, given = draw(chance, tmp_path, number), settings(chance, tmp_path)
        data, test = (good, path) if chance.random() < 0.1 else (path, None)
        try:
            usable += check(data, given, test)
        except BaseException as error:
            raise AssertionError(f"{data} {given} {test}: {path.read_bytes()[:3000]!r}") from error
        path.unlink()
    assert 0 < usable < count


@pytest.mark.usefixtures("imported")
def test_the_command_describes_any_file_or_refuses_it(chance, tmp_path, capsys):
    for number in range(40):
        path = draw(chance, tmp_path, number)
        code = main(["data", str(path)])
        said = capsys.readouterr()
        assert (code, said.err) == (0, "") or (code == 2 and said.err.startswith("mu2mpi: error: ")), (
            path.name
        )
