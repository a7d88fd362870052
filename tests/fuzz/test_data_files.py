"""Files of data that are broken at random: each can be used or is refused, soon, and nothing else happens.

Spreadsheets that are written in an odd way are read as they are meant, or the message says what is odd.
"""

import csv
import gzip
import io
import random
import struct
import time
import warnings
from unicodedata import category, normalize

import h5py
import numpy as np
import pytest
from helpers.slow import slow

from mu2mpi.config.experiment import Experiment
from mu2mpi.core.errors import InputError
from mu2mpi.data.sources.user_file import HoldoutSplit
from mu2mpi.execution.plan import open_source

SECONDS = 20
ROWS, FEATURES = 40, 3
SUFFIXES = ("h5", "npz", "csv", "csv.gz", "svm", "svm.gz")
X = np.random.default_rng(8).uniform(-1, 1, (ROWS, FEATURES)).astype(np.float32)
Y = np.arange(ROWS) % 3
CELLS = (
    "", " ", "nan", "NA", "?", "inf", "1e400", "-0", "1_0", "0x1", "\0", "\x1b[2J", '"', '""', '"a', "a\nb",
    "\r", ",", ";", "\t", "é", "\ufeff", "\ud800", "1,2", "9" * 5000, "0" * 140_000, "True", "١", "#", ":",
    "1:2", "qid:1", "0:1", "-1:1", "1:nan", "10000001:1", "99999999999999999999:1",
)  # fmt: skip


def content(suffix: str) -> bytes:
    """Return a good file."""
    buffer = io.BytesIO()
    if suffix == "h5":
        with h5py.File(buffer, "w") as file:
            file["features"], file["labels"] = X, Y
    elif suffix == "npz":
        np.savez(buffer, features=X, labels=Y)
    else:
        rows = zip(X.tolist(), Y.tolist(), strict=True)
        csv = ["a,b,c,label", *(f"{a},{b},{c},{y}" for (a, b, c), y in rows)]
        svm = [f"{y} 1:{a} 2:{b} 3:{c}" for (a, b, c), y in zip(X.tolist(), Y.tolist(), strict=True)]
        text = "\n".join(csv if suffix.startswith("csv") else svm).encode()
        return gzip.compress(text, mtime=0) if suffix.endswith("gz") else text
    return buffer.getvalue()


def damaged(chance: random.Random, good: bytes) -> bytes:
    """Flip bytes, cut a file off, leave a part out, repeat one, or put something else there."""
    found = bytearray(good)
    for _ in range(chance.choice((1, 1, 2, 8))):
        place, other = sorted(chance.randrange(len(found) + 1) for _ in range(2))
        match chance.randrange(6):
            case 0 | 1:
                found[place : place + 1] = bytes([chance.randrange(256)])
            case 2:
                del found[place:]
            case 3:
                del found[place : min(other, place + 64)]
            case 4:
                found[place:place] = found[other : other + 64]
            case _:
                found[place : place + 8] = struct.pack("<q", chance.choice((-1, 0, 2**31, 2**32, 2**62)))
    return bytes(found)


def with_odd_cells(chance: random.Random, suffix: str) -> bytes:
    """Put odd cells into a table."""
    packed, gap = suffix.endswith("gz"), " " if "svm" in suffix else ","
    good = gzip.decompress(content(suffix)) if packed else content(suffix)
    rows = [line.split(gap) for line in good.decode().split("\n")]
    for _ in range(chance.choice((1, 1, 2, 5))):
        row = chance.choice(rows)
        row[chance.randrange(len(row))] = chance.choice(CELLS)
        row += [chance.choice(CELLS)] * (chance.random() < 0.2)
    text = chance.choice(("\n", "\r\n", "\r", "\n\n")).join(gap.join(row) for row in rows)
    odd = text.encode(chance.choice(("utf-8", "utf-8", "utf-16")), "surrogatepass")
    return gzip.compress(odd) if packed else odd


def can_be_used(path, chance: random.Random) -> bool:
    """Open a file and read all of it as a run does."""
    settings = {"missing_labels": "keep"} if chance.random() < 0.2 else {}
    try:
        source = open_source(Experiment(data=str(path), normalize="unit", **settings))
        assert len(source.digest) == 32
        assert source.class_sizes.sum() == source.training_samples
    except InputError as error:
        # What it says may repeat no more than a little of the file.
        if len(str(error)) > 1000:
            raise ValueError(str(error)) from error
        return False
    names = "".join(source.class_names)
    assert not any(category(letter) in ("Cc", "Cs") for letter in names)
    return True


@pytest.mark.parametrize("count", [120, *slow(4000)])
def test_any_file_can_be_used_or_is_refused(chance, tmp_path, count):
    usable = 0
    for number in range(count):
        suffix = chance.choice(SUFFIXES)
        path = tmp_path / f"{number}.{suffix}"
        texts = suffix not in ("h5", "npz") and chance.random() < 0.6
        path.write_bytes(with_odd_cells(chance, suffix) if texts else damaged(chance, content(suffix)))
        began = time.process_time()
        try:
            with warnings.catch_warnings(action="error"):
                usable += can_be_used(path, chance)
        except BaseException as error:
            raise AssertionError(f"{path}: {path.read_bytes()[:3000]!r}") from error
        assert time.process_time() - began < SECONDS, path
        path.unlink()
    assert 0 < usable < count


SEPARATORS = {",": ".csv", ";": ".csv", "\t": ".tsv", "|": ".csv"}
CLASSES = ("nein", "jä", "vielleicht, später")
TABLE = [[*map(str, row), CLASSES[y]] for row, y in zip((np.rint(8 * X) / 8).tolist(), Y, strict=True)]
NAMES = ["größe", 'ein "Name"', "x;y,z", "label"]


def ending_in_separators(rows):
    return [[*row, ""] for row in rows]


def with_first_column(change):
    """Return a defect that writes the numbers of the first column in another way."""
    return lambda rows: [rows[0], *([change(row[0]), *row[1:]] for row in rows[1:])]


# Words of the message, and how a table gets the defect that it is about
DEFECTS = {
    "": lambda rows: rows,
    "column 5 has no name": ending_in_separators,
    "column 2 has no name": lambda rows: [[row[0], str(k or ""), *row[1:]] for k, row in enumerate(rows)],
    "values, and the first 4": lambda rows: [rows[0], *ending_in_separators(rows[1:])],
    "columns 1 and 3 have the same name, of größe, ": lambda rows: [
        [*rows[0][:2], "größe", "label"],
        *rows[1:],
    ],
    "has no features": lambda rows: [[row[3].partition(",")[0]] for row in rows],
    "a decimal comma": with_first_column(lambda number: number.replace(".", ",")),
    "a percent sign": with_first_column(lambda number: f"{number}%"),
    "thousands marks": with_first_column(lambda number: f"{12345678 + float(number):,}"),
    "not a number": with_first_column(lambda number: f"{number} kg"),
    "every label is the same": lambda rows: [rows[0], *([*row[:3], "nein"] for row in rows[1:])],
    "different labels with fractions": lambda rows: [
        [*row[:3], str(k / 7) if k else "label"] for k, row in enumerate(rows)
    ],
}
ENCODINGS = ("utf-16", "utf-16-le", "utf-16-be", "latin-1")


def spreadsheet(chance: random.Random, folder, defect: str, encoding: str):
    """Write a table with one defect at most, in other respects as one program or another would."""
    separator, newline = chance.choice([*SEPARATORS]), chance.choice(("\n", "\r\n", "\r"))
    quoting = chance.choice((csv.QUOTE_MINIMAL, csv.QUOTE_ALL))
    text = io.StringIO(newline="")
    writer = csv.writer(text, delimiter=separator, quoting=quoting, lineterminator=newline)
    writer.writerows(DEFECTS[defect]([NAMES, *TABLE]))
    is_marked = separator == "|" or chance.random() < 0.3
    content = newline * chance.randrange(3) + f"sep={separator}{newline}" * is_marked + text.getvalue()
    content = content.replace(newline, newline * chance.choice((1, 1, 2)))
    if encoding == "utf-8":
        content = chance.choice(("", "\ufeff")) + normalize(chance.choice(("NFC", "NFD")), content)
    is_packed = chance.random() < 0.2
    path = folder / f"{chance.randrange(10**9)}{SEPARATORS[separator]}{'.gz' * is_packed}"
    path.write_bytes(gzip.compress(content.encode(encoding)) if is_packed else content.encode(encoding))
    return path


@pytest.mark.parametrize("count", [60, *slow(3000)])
def test_spreadsheets_are_read_as_they_are_meant_or_the_message_says_what_is_odd(chance, tmp_path, count):
    want = np.array([row[:3] for row in TABLE], float)
    for _ in range(count):
        encoding = chance.choice(["utf-8"] * 9 + [*ENCODINGS])
        defect = chance.choice([*DEFECTS, ""]) if encoding == "utf-8" else ""
        path = spreadsheet(chance, tmp_path, defect, encoding)
        try:
            source = open_source(Experiment(data=str(path), test=0.2))
            samples = source.read_training(np.arange(source.training_samples))
        except InputError as error:
            said = str(error).removeprefix(str(path))
            assert (defect or "is not text in UTF-8") in said, (said, path.read_bytes()[:500])
            assert not any(name in said for name in CLASSES), said
            assert not any(row[0] in said for row in TABLE if len(row[0]) > 4), said
            continue
        assert (defect, encoding) == ("", "utf-8"), path.read_bytes()[:500]
        assert source.feature_names == tuple(NAMES[:3])
        assert source.class_names == tuple(sorted(CLASSES))
        rows = HoldoutSplit(ROWS, 0.2, 0).training_rows(np.arange(source.training_samples))
        np.testing.assert_array_equal(samples.features, want[rows])
        assert [source.class_names[k] for k in samples.labels] == [TABLE[row][3] for row in rows]


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_the_files_from_which_these_are_made_are_good(chance, tmp_path, suffix):
    (tmp_path / f"a.{suffix}").write_bytes(content(suffix))
    assert can_be_used(tmp_path / f"a.{suffix}", chance)
