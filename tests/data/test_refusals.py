"""What looks like data and is none: missing labels, names that nothing can hold, holes, bombs and pipes."""

import gzip
import io
import os
import socket
import tracemalloc
import zipfile
from pathlib import Path

import h5py
import numpy as np
import pytest

from mu2mpi import memory
from mu2mpi.cli import main
from mu2mpi.config.experiment import Experiment
from mu2mpi.data.opening import open_source
from mu2mpi.data.sources.user_file import MISSING
from mu2mpi.errors import InputError

ROWS, BAD = 40, 17
X = np.random.default_rng(2).integers(-8, 9, (ROWS, 3)).astype(np.float32) / 8
Y = np.arange(ROWS) % 3
NAMES = [("no", "perhaps", "yes")[k] for k in Y]
FORMATS = ("csv", "npz", "h5")
ROW = {
    "csv": f"row {BAD + 2} .the header is row 1.",
    **dict.fromkeys(("npz", "h5"), f"row {BAD + 1} .the first is row 1."),
}
"""Where the bad name is, as a spreadsheet would number the row."""


def having(name):
    """Return good names but for one."""
    return [*NAMES[:BAD], name, *NAMES[BAD + 1 :]]


def written(folder, kind, labels=NAMES, owners=None):
    path = folder / f"a.{kind}"
    columns = {"label": labels} if owners is None else {"label": labels, "machine": owners}
    if kind == "csv":
        lines = [",".join(["a", "b", "c", *columns])]
        for row, *names in zip(X.tolist(), *columns.values(), strict=True):
            lines.append(",".join([*map(str, row), *('"' + name + '"' for name in names)]))
        path.write_text("\n".join(lines), newline="")
    elif kind == "npz":
        np.savez(path, X=X, **{name: np.array(column) for name, column in columns.items()})
    else:
        with h5py.File(path, "w") as file:
            file["X"] = X
            for name, column in columns.items():
                file[name] = np.array([text.encode() for text in column], h5py.string_dtype("utf-8", 9))
    return path


def opened(path, **settings):
    """Open a public file and read it once, as a run does before anything is sent."""
    source = open_source(Experiment(data=str(path), data_is_public=True, **settings))
    assert source.digest
    return source


@pytest.mark.parametrize("column", ["label", "owner"])
@pytest.mark.parametrize("kind", FORMATS)
@pytest.mark.parametrize("name", ["a\0b", "a\x1b[2J", "a\nb", "a\x85b"])
def test_names_that_no_result_or_terminal_takes(tmp_path, kind, name, column):
    names = having(name)
    path = written(tmp_path, kind, names) if column == "label" else written(tmp_path, kind, NAMES, names)
    with pytest.raises(InputError, match=rf"a\.{kind}: {ROW[kind]} has the {column} a\\") as caught:
        opened(path)
    assert str(caught.value).isprintable()


@pytest.mark.parametrize("column", ["label", "owner"])
def test_half_a_letter_is_no_name(tmp_path, column):
    names = having("a\ud800b")
    path = written(tmp_path, "npz", names) if column == "label" else written(tmp_path, "npz", NAMES, names)
    with pytest.raises(InputError, match=rf"{ROW['npz']} has the {column} a\\ud800b"):
        opened(path)


def test_an_owner_whose_name_is_no_text(tmp_path):
    with h5py.File(tmp_path / "a.h5", "w") as file:
        for owner in (b"a", b"\xff"):
            group = file.create_group(b"machine/" + owner)
            group["X"], group["y"] = X, Y
    with pytest.raises(InputError, match=r"name of an owner .* is not in UTF-8"):
        opened(tmp_path / "a.h5")


@pytest.mark.parametrize("kind", FORMATS)
def test_a_missing_label_is_no_class_unless_the_user_says_so(tmp_path, kind):
    # Another process reads texts of HDF5 first, which takes a while.
    for name in sorted(MISSING) if kind != "h5" else ("NaN", "?"):
        for shown in {name, name.upper(), name.title()}:
            path = written(tmp_path, kind, having(shown))
            with pytest.raises(InputError, match=rf"{ROW[kind]} has the label .*--missing-labels keep"):
                opened(path)
    assert shown in opened(path, missing_labels="keep").class_names
    path = written(tmp_path, kind, NAMES, having("N/A"))
    with pytest.raises(InputError, match=rf"{ROW[kind]} has the owner N/A, which says that it is missing"):
        opened(path)
    assert "N/A" in opened(path, missing_labels="keep").training_owners()


@pytest.mark.parametrize("kind", FORMATS)
@pytest.mark.parametrize("name", ["", " "])
def test_an_empty_label_is_never_kept(tmp_path, kind, name):
    path = written(tmp_path, kind, having(name))
    with pytest.raises(InputError, match=rf"{ROW[kind]} has the label .*, which is empty"):
        opened(path, missing_labels="keep")


def test_numbers_with_one_missing(tmp_path):
    path = written(tmp_path, "csv", [*map(str, Y[:BAD]), "NA", *map(str, Y[BAD + 1 :])])
    with pytest.raises(InputError, match=f"{ROW['csv']} has the label NA"):
        opened(path)


def test_what_a_person_takes_for_names_are_no_numbers(tmp_path):
    path = written(tmp_path, "csv", [("1_1", "1_10", "11")[k] for k in Y])
    assert opened(path).class_names == ("11", "1_1", "1_10")


def test_the_test_file_is_held_to_the_same(tmp_path):
    (tmp_path / "other").mkdir()
    good = written(tmp_path, "csv")
    with pytest.raises(InputError, match=rf"other/a\.npz: {ROW['npz']} has the label NULL"):
        opened(good, test=str(written(tmp_path / "other", "npz", having("NULL"))))


def test_a_run_is_refused_before_it_begins(tmp_path, capsys):
    path = written(tmp_path, "csv", having("a\0b"))
    command = ["run", "--data", str(path), "--machines", "1", "--output", str(tmp_path / "r.h5")]
    assert main(command) == 2
    assert capsys.readouterr().err.startswith(f"mu2mpi: error: {path} has a label with a character that")
    assert main([*command, "--data-is-public"]) == 2
    assert capsys.readouterr().err.startswith(f"mu2mpi: error: {path}: row 19 (the header is row 1) has")
    assert [file.name for file in tmp_path.iterdir()] == ["a.csv"]


def test_what_is_kept_is_shown(tmp_path, capsys):
    path = str(written(tmp_path, "csv", having("NA")))
    assert main(["data", path]) == 2
    assert main(["data", path, "--missing-labels", "keep"]) == 0
    assert "in the order of the model: NA, no, perhaps, yes" in capsys.readouterr().out


@pytest.mark.parametrize("option", ["data", "test"])
def test_a_file_whose_name_no_result_can_hold(tmp_path, option):
    with pytest.raises(InputError, match=rf"{option} = .* should be text in UTF-8; rename the file"):
        Experiment(**{"data": "a.csv", option: "\udcff.csv"})
    with pytest.raises(InputError, match=r"cannot read .*null byte"):
        opened("a\0.csv")


@pytest.mark.parametrize("kind", FORMATS)
def test_a_feature_is_not_the_label_nor_the_owner_and_is_named_once(tmp_path, kind):
    path = written(tmp_path, kind, [*map(str, Y)], [*map(str, Y)])
    if kind == "csv":
        for features in ("a,b,label", "a,b,machine", "a,b,a"):
            with pytest.raises(InputError, match="is named as features twice, or holds labels or owners too"):
                opened(path, features=features)
        assert opened(path, features="a,c").dimension == 2
        return
    for name in ("label", "machine"):
        with pytest.raises(InputError, match=rf"{name} is named as features twice, or holds labels"):
            opened(path, features=name)


def test_one_dataset_under_two_names_is_one(tmp_path):
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["labels"] = Y[:, np.newaxis]
        file["features"] = file["labels"]
        file["x"] = h5py.SoftLink("/labels")
    for features in ("features", "x"):
        with pytest.raises(InputError, match="is named as features twice, or holds labels"):
            opened(tmp_path / "a.h5", features=features)


@pytest.mark.parametrize("rows", [ROWS, 2**40])
@pytest.mark.parametrize("dataset", ["features", "labels"])
def test_chunks_that_were_never_written(tmp_path, rows, dataset):
    with h5py.File(tmp_path / "a.h5", "w") as file:
        for name, shape in (("features", (rows, 3)), ("labels", (rows,))):
            made = file.create_dataset(name, shape, "i1", chunks=(10, *shape[1:]))
            made[: min(rows, 100)] = (np.arange(min(rows, 100)) % 2).reshape(-1, *[1] * (len(shape) - 1))
        if rows == ROWS:
            del file[dataset]
            shape = (rows, 3) if dataset == "features" else (rows,)
            file.create_dataset(dataset, shape, "i1", chunks=(10, *shape[1:]))[10:20] = 1
    with pytest.raises(InputError, match=r"of /\w+, only \d+ of \d+ chunks were ever written"):
        opened(tmp_path / "a.h5")


def with_features(path, make):
    with h5py.File(path, "w") as file:
        file["labels"] = Y
        make(file)
    return path


def virtual(name, rows=ROWS):
    layout = h5py.VirtualLayout(X.shape, np.float32)
    if name:
        layout[:rows] = h5py.VirtualSource(name, "X", X.shape)[:rows]
    return lambda file: file.create_virtual_dataset("features", layout)


def test_parts_of_a_dataset_that_are_nowhere(tmp_path, monkeypatch):
    """HDF5 itself gives zeros for all of these."""
    monkeypatch.chdir(tmp_path)
    written(tmp_path, "h5").rename("other.h5")
    path = tmp_path / "b.h5"
    for name, message in ((None, "only 0 of 120 values"), ("other.h5", "only 90 of 120 values")):
        with pytest.raises(InputError, match=message):
            opened(with_features(path, virtual(name, 30)))
    with pytest.raises(InputError, match=r"names the file gone\.h5, which is not there"):
        opened(with_features(path, virtual("gone.h5")))
    (tmp_path / "raw").write_bytes(bytes(100))

    def in_raw(file):
        file.create_dataset("features", X.shape, np.float32, external=[("raw", 0, X.nbytes)])

    with pytest.raises(InputError, match="only 100 of 480 bytes were ever written"):
        opened(with_features(path, in_raw))


SOURCES = {
    "absent": ("no object|doesn't exist", lambda: virtual_of("other.h5", "absent")),
    "too small": ("no dataset, or too small", lambda: virtual_of("other.h5", "short")),
    "a group": ("no dataset, or too small", lambda: virtual_of("other.h5", "group")),
    "never written": ("only 0 of 960 bytes were ever written", lambda: virtual_of("other.h5", "never")),
    "itself": ("is a part of itself", lambda: virtual_of(".", "features")),
    "a circle": ("is a part of itself", lambda: virtual_of("circle.h5", "features")),
    "a circle of links": ("or a circle of them", lambda: h5py.SoftLink("/features")),
    "a pipe, far away": ("pipe: it is no ordinary file", lambda: h5py.ExternalLink("other.h5", "/pipe/X")),
    "a pipe behind a link": ("pipe: it is no ordinary file", lambda: h5py.SoftLink("/pipe/X")),
    "a number": (r"the shape \(\); it should have rows", lambda: 1.0),
}


def virtual_of(name, dataset):
    layout = h5py.VirtualLayout(X.shape, "f8")
    layout[:] = h5py.VirtualSource(name, dataset, X.shape)
    return layout


def put(file, value):
    if isinstance(value, h5py.VirtualLayout):
        file.create_virtual_dataset("features", value)
    else:
        file["features"] = value


@pytest.fixture
def others(tmp_path, monkeypatch):
    """Make the files that features come from."""
    monkeypatch.chdir(tmp_path)
    os.mkfifo("pipe")
    with h5py.File("other.h5", "w") as file:
        file["X"], file["short"], file["group/X"] = X.astype(float), X[:9].astype(float), X
        file.create_dataset("never", X.shape, "f8")
        file["pipe"], file["link"] = h5py.ExternalLink("pipe", "/"), h5py.SoftLink("group/X")
    with_features(tmp_path / "circle.h5", lambda file: put(file, virtual_of("a.h5", "features")))
    return tmp_path


@pytest.mark.parametrize("kind", SOURCES)
def test_features_that_come_from_elsewhere_and_are_not_there(kind, others):
    words, value = SOURCES[kind]

    def make(file):
        put(file, value())
        file["pipe"] = h5py.ExternalLink("pipe", "/")

    with pytest.raises(InputError, match=words):
        opened(with_features(others / "a.h5", make))


@pytest.mark.parametrize(
    "value",
    [
        lambda: virtual_of("other.h5", "X"),
        lambda: virtual_of(".", "own"),
        lambda: virtual_of("other.h5", "link"),
        lambda: h5py.ExternalLink("other.h5", "link"),
        lambda: h5py.SoftLink("own"),
    ],
)
def test_features_that_come_from_elsewhere_are_found(value, others):
    def make(file):
        file["own"] = X.astype(float)
        put(file, value())

    source = opened(with_features(others / "a.h5", make))
    rows = np.arange(source.training_samples)
    expected = opened(with_features(others / "b.h5", lambda file: put(file, X)))
    np.testing.assert_array_equal(source.training(rows).features, expected.training(rows).features)


def test_a_virtual_dataset_that_grows_with_its_source_is_read(tmp_path):
    endless = h5py.h5s.UNLIMITED
    layout = h5py.VirtualLayout(X.shape, np.float32, maxshape=(None, 3))
    source = h5py.VirtualSource(".", "x", X.shape, maxshape=(None, 3))
    layout[:endless, :] = source[:endless, :]
    with h5py.File(tmp_path / "a.h5", "w", libver="latest") as file:
        file["labels"] = Y
        file.create_dataset("x", data=X, maxshape=(None, 3), chunks=(8, 3))
        file.create_virtual_dataset("features", layout)
    assert opened(tmp_path / "a.h5").dimension == 3


def test_a_row_of_chunks_that_memory_cannot_hold(tmp_path):
    rows, columns = 2**14, 2**13
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["labels"] = np.arange(rows) % 2
        made = file.create_dataset("features", (rows, 10**7), "f8", chunks=(rows, columns), compression=1)
        for column in range(0, 10**7, columns):
            made.id.write_direct_chunk((0, column), b"packed")
    with pytest.raises(InputError, match=r"does not fit into memory: it takes 1\.22e\+03 GiB"):
        opened(tmp_path / "a.h5")


def header(shape, kind):
    buffer = io.BytesIO()
    np.lib.format.write_array_header_1_0(buffer, {"descr": kind, "fortran_order": False, "shape": shape})
    return buffer.getvalue()


def archive(path, **members):
    """Write an archive in which members of a few bytes are said to be as large as their headers say."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as file:
        for name, shape in members.items():
            start, size = header(shape, "<f8"), 8 * int(np.prod(shape, dtype=object))
            file.writestr(f"{name}.npy", start + bytes(min(size, 100)))
            file.getinfo(f"{name}.npy").file_size = len(start) + size
    path.write_bytes(buffer.getvalue())
    return path


def test_an_archive_that_promises_too_much(tmp_path):
    for members, message in (
        ({"X": (10**12, 3), "y": (10**12,)}, r"a\.npz does not fit into memory: it takes 2\.98e\+04 GiB"),
        ({"X": (10**12, 3), "y": (10**11,)}, r"10{12} rows of features but 10{11} labels"),
        ({"X": (10**3, 3), "y": (10**3,)}, "ends too early"),
        ({"X": (10, 1), "y": (10,), "machine": (10**12,)}, r"10 rows of features but 10{12} owners"),
    ):
        with pytest.raises(InputError, match=message):
            opened(archive(tmp_path / "a.npz", **members))


@pytest.mark.parametrize("start", [b"\x93NUMPY\x02\x00\xff\xff\xff\x07", header((2**24, 1), "<f8")])
def test_an_archive_is_not_unpacked_before_it_is_judged(tmp_path, start):
    with zipfile.ZipFile(tmp_path / "a.npz", "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr("y.npy", header((ROWS,), "<i8") + Y.tobytes())
        file.writestr("X.npy", start + bytes(2**27))
    tracemalloc.start()
    try:
        with pytest.raises(InputError, match=r"reading array header|16777216 rows of features but 40 labels"):
            opened(tmp_path / "a.npz")
        assert tracemalloc.get_traced_memory()[1] < 2**22
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(
    ("name", "piece"),
    [
        ("zeros.csv.gz", bytes(8)),
        ("lines.csv.gz", b"\n" * 8),
        ("rows.CSV.GZ", b"0,0,0,1\n"),
        ("rows.svm.gz", b"1 1:0.5\n"),
        ("line.svm.gz", b"1 1:0.5 "),
    ],
)
def test_a_few_bytes_that_unpack_to_many(tmp_path, name, piece):
    (tmp_path / name).write_bytes(24 * gzip.compress(piece * (1 << 17)))
    with pytest.raises(InputError, match=r"unpacks to over 250 times its size; if that is meant, unpack it"):
        opened(tmp_path / name)


@pytest.mark.parametrize("name", ["a.csv", "a.svm"])
def test_a_line_without_an_end(tmp_path, name):
    with open(tmp_path / name, "wb") as file:
        file.truncate(1 << 40)
    with pytest.raises(InputError, match=f"{name} has a line of more than 268435456 bytes"):
        opened(tmp_path / name)


GROUPS = {"0::": "", "memory:": "memory"}
"""How a line of the kernel's about this process's control group begins, and the folder of such groups."""


@pytest.mark.parametrize("kind", GROUPS)
def test_text_is_read_as_long_as_the_memory_of_the_job_allows(tmp_path, monkeypatch, kind):
    if kind not in Path("/proc/self/cgroup").read_text():
        pytest.skip("this kernel has control groups of another version")
    folder = tmp_path / GROUPS[kind]
    folder.mkdir(exist_ok=True)
    limit, used, prefix = memory.LIMITS[0 if kind == "0::" else 1]
    monkeypatch.setattr(memory, "GROUPS", tmp_path)
    path = tmp_path / "a.csv"
    path.write_text("a,label\n" + f"0.{10**99},1\n0.{20**80},2\n" * 10**5)
    (folder / "memory.stat").write_text(f"{prefix}active_file {1 << 20}\n{prefix}inactive_file {1 << 20}\n")
    (folder / limit).write_text("1073741824\n")
    (folder / used).write_text("1063741824\n")
    assert memory.memory_left() == 10**7 + (2 << 20)
    with pytest.raises(InputError, match=r"a\.csv does not fit into memory: it takes 0\.25 GiB or more, and"):
        opened(path)
    (folder / limit).write_text("max\n")
    assert 2**28 < memory.memory_left() <= os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def no_file(path, kind):
    """Make something of a name that is no ordinary file."""
    match kind:
        case "pipe":
            os.mkfifo(path)
        case "folder":
            path.mkdir()
        case "socket":
            with socket.socket(socket.AF_UNIX) as made:
                made.bind(str(path))
        case _:
            path.symlink_to(f"/dev/{kind}")


@pytest.mark.parametrize("kind", ["pipe", "folder", "socket", "zero", "random", "null"])
def test_what_is_no_ordinary_file(tmp_path, monkeypatch, kind):
    monkeypatch.chdir(tmp_path)  # the name of a socket must be short
    good = written(tmp_path, "csv")
    for suffix in ("h5", "npz", "csv", "csv.gz", "svm"):
        path = tmp_path / f"b.{suffix}"
        no_file(path.relative_to(tmp_path), kind)
        for settings in ({"data": str(path)}, {"data": str(good), "test": str(path)}):
            with pytest.raises(InputError, match=rf"cannot read .*b\.{suffix}: (it is no ordinary|Is a dir)"):
                open_source(Experiment(**settings))


def test_hdf5_opens_no_pipe_that_a_file_names(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    os.mkfifo("pipe")
    for make in (
        virtual("pipe"),
        lambda file: file.__setitem__("features", h5py.ExternalLink("pipe", "/X")),
        lambda file: file.__setitem__("machine", h5py.ExternalLink("pipe", "/X")),
        lambda file: file.create_dataset("features", X.shape, "f4", external=[("pipe", 0, X.nbytes)]),
    ):
        with pytest.raises(InputError, match=r"cannot read .*pipe: it is no ordinary file"):
            opened(with_features(tmp_path / "a.h5", make))


def test_a_link_to_an_ordinary_file_is_one(tmp_path):
    (tmp_path / "b.csv").symlink_to(written(tmp_path, "csv"))
    assert opened(tmp_path / "b.csv").classes == 3
