"""Files that are no data: cut off, random, of wrong types or shapes, ragged, NaN, huge, empty, one class."""

import gzip
import io
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path

import h5py
import numpy as np

ROWS, FEATURES = 40, 3
SUFFIXES = ("h5", "npz", "csv", "csv.gz", "svm", "svm.gz")
random = np.random.default_rng(8)
X = random.uniform(-1, 1, (ROWS, FEATURES)).astype(np.float32)
Y = np.arange(ROWS) % 3
HEAD = "a,b,c,label\n"

Case = tuple[str, Callable[[Path], object]]


def content(suffix: str) -> bytes:
    """Return a good file."""
    if suffix == "h5":
        return hdf5(features=X, labels=Y)
    if suffix == "npz":
        return archive(features=X, labels=Y)
    rows = zip(X.tolist(), Y.tolist(), strict=True)
    if suffix.startswith("csv"):
        text = HEAD + "".join(f"{a},{b},{c},{y}\n" for (a, b, c), y in rows)
    else:
        text = "".join(f"{y} 1:{a} 2:{b} 3:{c}\n" for (a, b, c), y in rows)
    return gzip.compress(text.encode(), mtime=0) if suffix.endswith("gz") else text.encode()


def hdf5(**arrays: object) -> bytes:
    buffer = io.BytesIO()
    with h5py.File(buffer, "w") as file:
        for name, values in arrays.items():
            file[name.replace("__", "/")] = values
    return buffer.getvalue()


def archive(**arrays: np.ndarray) -> bytes:
    buffer = io.BytesIO()
    np.savez(buffer, **arrays)
    return buffer.getvalue()


def cases() -> Iterator[Case]:
    """Yield the name of each file, and what writes it."""

    def put(data: bytes | str) -> Callable[[Path], object]:
        return lambda path: path.write_bytes(data.encode() if isinstance(data, str) else data)

    for suffix in SUFFIXES:
        yield f"empty.{suffix}", put(b"")
        yield f"spaces.{suffix}", put(b" \n\n \t\n")
        yield f"folder.{suffix}", lambda path: path.mkdir()
        yield f"absent.{suffix}", lambda path: None
        for k in range(6):
            yield f"random-{k}.{suffix}", put(random.bytes(int(10 ** random.uniform(0, 4))))
        good = content(suffix)
        if suffix not in ("csv", "svm"):
            for k, end in enumerate(np.linspace(1, len(good) - 1, 16).astype(int)):
                yield f"truncated-{k}.{suffix}", put(good[:end])
        for other in SUFFIXES:
            if other.split(".")[0] != suffix.split(".")[0]:
                yield f"really-{other.replace('.', '-')}.{suffix}", put(content(other))
    for name, arrays in arrays_that_are_no_samples():
        yield f"{name}.h5", put(hdf5(**arrays))
        yield f"{name}.npz", put(archive(**{k: v for k, v in arrays.items() if "__" not in k}))
    yield from hdf5_only()
    yield from npz_only()
    yield from ((f"{name}.csv", put(text)) for name, text in texts_that_are_no_table())
    yield from ((f"{name}.svm", put(text)) for name, text in lines_that_are_not_libsvm())


def with_value(value: float, type_: str = "f4") -> np.ndarray:
    values = X.astype(type_)
    values[17, 1] = value
    return values


def arrays_that_are_no_samples() -> Iterator[tuple[str, dict[str, np.ndarray]]]:
    for value in (np.nan, np.inf, -np.inf, 1.01, -1e30):
        yield f"value {value}", {"features": with_value(value), "labels": Y}
    yield "value 1e300", {"features": with_value(1e300, "f8"), "labels": Y}
    yield "integers", {"features": np.full((ROWS, 2), -(2**63)), "labels": Y}
    yield "complex features", {"features": X.astype("c8"), "labels": Y}
    yield "text features", {"features": X.astype("S9"), "labels": Y}
    yield "records", {"features": np.zeros((ROWS, 2), [("a", "f4"), ("b", "i4")]), "labels": Y}
    yield "one number", {"features": np.array(1.0), "labels": Y}
    yield "one column", {"features": X[:, 0], "labels": Y}
    yield "no features", {"features": X[:, :0], "labels": Y}
    yield "no rows", {"features": X[:0], "labels": Y[:0]}
    yield "one row", {"features": X[:1], "labels": Y[:1]}
    yield "wide", {"features": np.zeros((3, 10_000_001), np.bool_), "labels": Y[:3]}
    yield "too few labels", {"features": X, "labels": Y[:-1]}
    yield "too many labels", {"features": X[:-1], "labels": Y}
    yield "one label", {"features": X, "labels": np.array(1)}
    yield "a column each", {"features": X, "labels": np.eye(3)[Y]}
    yield "one class", {"features": X, "labels": np.zeros(ROWS, int)}
    yield "one class of text", {"features": X, "labels": np.full(ROWS, b"yes")}
    yield "fractions", {"features": X, "labels": Y / 2}
    yield "labels NaN", {"features": X, "labels": np.where(Y > 1, np.nan, Y)}
    yield "labels infinite", {"features": X, "labels": np.where(Y > 1, np.inf, Y)}
    yield "labels beyond 64 bits", {"features": X, "labels": 1e30 * Y}
    yield "labels beyond 63 bits", {"features": X, "labels": Y.astype("u8") + np.uint64(2**63)}
    yield "complex labels", {"features": X, "labels": Y * 1j}
    yield "empty labels", {"features": X, "labels": np.where(Y > 1, b"", b"a")}
    yield "no UTF-8", {"features": X, "labels": np.where(Y > 1, b"\xff\xfe", b"a")}
    yield "every label another", {"features": np.zeros((3000, 1)), "labels": np.arange(3000)}
    yield "other names", {"pixels": X, "digits": Y}
    yield "no labels", {"features": X}
    yield "nothing", {}
    yield "owners too few", {"features": X, "labels": Y, "machine": Y[:-1]}
    yield "owners fractions", {"features": X, "labels": Y, "machine": Y / 2}
    yield "owners in columns", {"features": X, "labels": Y, "machine": np.eye(3)[Y]}


def hdf5_only() -> Iterator[Case]:
    def made(fill: Callable[[h5py.File], object]) -> Callable[[Path], object]:
        def write(path: Path) -> None:
            with h5py.File(path, "w") as file:
                fill(file)

        return write

    def never_written(rows: int) -> Callable[[h5py.File], object]:
        return lambda file: (
            file.create_dataset("features", (rows, 3), "f4", chunks=(100, 3)),
            file.create_dataset("labels", (rows,), "i4", chunks=(100,)),
        )

    for rows in (100, 2**31, 2**40):
        yield f"never written {rows}.h5", made(never_written(rows))
    yield (
        "2-31 labels.h5",
        made(
            lambda f: (
                f.create_dataset("features", data=X),
                f.create_dataset("labels", (2**31,), "i4", chunks=(1024,)),
            )
        ),
    )
    yield "group for a dataset.h5", put_hdf5(features__a=X, labels=Y)
    yield (
        "nowhere.h5",
        made(lambda f: (f.__setitem__("features", h5py.SoftLink("/gone")), f.__setitem__("labels", Y))),
    )
    yield (
        "elsewhere.h5",
        made(
            lambda f: (
                f.__setitem__("features", h5py.ExternalLink("gone.h5", "/x")),
                f.__setitem__("labels", Y),
            )
        ),
    )
    yield "null.h5", made(lambda f: (f.__setitem__("features", h5py.Empty("f4")), f.__setitem__("labels", Y)))
    yield "owners without samples.h5", made(lambda f: f.create_group("machine"))
    yield "owners without labels.h5", put_hdf5(machine__a__X=X)
    yield "owners that are arrays.h5", put_hdf5(machine__a=X, machine__b=X)
    yield (
        "owners that differ.h5",
        put_hdf5(machine__a__X=X, machine__a__y=Y, machine__b__X=X[:, :2], machine__b__y=Y),
    )
    yield (
        "raw data elsewhere.h5",
        made(
            lambda f: (
                f.create_dataset("features", (ROWS, 3), "f4", external=[("gone.raw", 0, ROWS * 12)]),
                f.__setitem__("labels", Y),
            )
        ),
    )


def put_hdf5(**arrays: object) -> Callable[[Path], object]:
    return lambda path: path.write_bytes(hdf5(**arrays))


def npz_only() -> Iterator[Case]:
    def with_header(shape: tuple[int, ...], rest: bytes = bytes(100)) -> bytes:
        header = io.BytesIO()
        np.lib.format.write_array_header_1_0(header, {"descr": "<f4", "fortran_order": False, "shape": shape})
        return header.getvalue() + rest

    def packed(features: bytes) -> Callable[[Path], object]:
        def write(path: Path) -> None:
            with zipfile.ZipFile(path, "w") as file:
                file.writestr("features.npy", features)
                file.writestr("labels.npy", with_header((25,)))

        return write

    for shape in ((10**12, 3), (2**31, 784), (0, 5), (25, 2), (-25, -1)):
        yield f"shape {shape[0]} {shape[1]}.npz", packed(with_header(shape))
    yield "no array.npz", packed(b"features")
    yield "version 9.npz", packed(b"\x93NUMPY\x09\x00" + bytes(100))
    yield "header cut.npz", packed(with_header((25, 1))[:30])
    yield "header code.npz", packed(b"\x93NUMPY\x01\x00\x10\x00__import__('os')" + bytes(100))
    yield "objects.npz", lambda path: np.savez(path, features=np.array([[{}]] * ROWS), labels=Y)
    good = content("npz")
    for k in range(8):
        place = good.index(b"\x93NUMPY") + 130 + 40 * k
        yield (
            f"flipped {k}.npz",
            lambda path, place=place: path.write_bytes(
                good[:place] + bytes([good[place] ^ 255]) + good[place + 1 :]
            ),
        )


def texts_that_are_no_table() -> Iterator[tuple[str, str | bytes]]:
    good = content("csv").decode()
    lines = good.splitlines(keepends=True)
    for k in range(6):
        line, cells = 2 + 5 * k, lines[2 + 5 * k].rstrip().split(",")
        for name, changed in (
            ("short", cells[:-1]),
            ("long", [*cells, "0"]),
            ("NaN", ["nan", *cells[1:]]),
            ("word", ["many", *cells[1:]]),
        ):
            yield f"{name} {k}", "".join([*lines[:line], ",".join(changed) + "\n", *lines[line + 1 :]])
    yield "head only", HEAD
    yield "one row", HEAD + "0,0,0,1\n"
    yield "empty cell", HEAD + "0,,0,1\n0,0,0,2\n"
    yield "no label", HEAD + "0,0,0,1\n0,0,0,\n"
    yield "infinite", HEAD + "0,0,0,1\n0,inf,0,2\n" * 2
    yield "huge", HEAD + "0,0,0,1\n0,1e400,0,2\n" * 2
    yield "one class", HEAD + "0,0,0,1\n" * 9
    yield "open quote", HEAD + '0,0,0,"1\n0,0,0,2\n'
    yield "same names", "a,a,c,label\n0,0,0,1\n0,0,0,2\n"
    yield "zero byte", HEAD.encode() + b"0,0\x00,0,1\n0,0,0,2\n"
    yield "latin", HEAD.encode() + b"0,0,0,\xe4\n0,0,0,\xf6\n" * 3
    yield "UTF-16", good.encode("utf-16")
    yield "numbers only", "0,0,0,1\n0,0,0,2\n"
    yield "a long cell", HEAD + "0" * 200_000 + ",0,0,1\n0,0,0,2\n"
    yield "labels only", "label\n1\n2\n1\n2\n"
    yield "every label another", HEAD + "".join(f"0,0,0,{k}\n" for k in range(1500))


def lines_that_are_not_libsvm() -> Iterator[tuple[str, str]]:
    for name, line in {
        "word": "1 many:1",
        "no value": "1 1:",
        "no colon": "1 1",
        "no number": "1 1:x",
        "label": "yes 1:1",
        "two labels": "1,2 1:1",
        "fraction": "0.5 1:1",
        "NaN": "1 1:nan",
        "infinite": "1 1:inf",
        "beyond": "1 1:1.5",
        "backwards": "1 3:1 2:1",
        "twice": "1 2:1 2:1",
        "negative": "1 -1:1",
        "far": "1 100000000:1",
        "beyond 31 bits": "1 2147483648:1",
        "beyond 63 bits": "1 9223372036854775808:1",
        "label NaN": "nan 1:1",
    }.items():
        yield name, f"1 1:0.5\n2 2:0.5\n{line}\n2 1:0.25\n" * 2
    yield "comments", "# nothing\n# at all\n"
    yield "one class", "1 1:0.5\n" * 5
    yield "no features", "1\n2\n1\n2\n"
    yield "one row", "1 1:0.5\n"
