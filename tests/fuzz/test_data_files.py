"""Files of data that are broken at random: each can be used or is refused, soon, and nothing else happens."""

import gzip
import io
import random
import struct
import time
import warnings
from unicodedata import category

import h5py
import numpy as np
import pytest
from helpers.slow import slow

from mu2mpi.config.experiment import Experiment
from mu2mpi.core.errors import InputError
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


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_the_files_from_which_these_are_made_are_good(chance, tmp_path, suffix):
    (tmp_path / f"a.{suffix}").write_bytes(content(suffix))
    assert can_be_used(tmp_path / f"a.{suffix}", chance)
