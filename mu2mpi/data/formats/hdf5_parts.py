"""Where an HDF5 file gets what it shows: by links, from other files, from parts that have to be written.

HDF5 itself opens whatever a link names, goes round in circles, and shows zeros for what is not there.
"""

import math
import os
from pathlib import Path
from typing import Any

import h5py

from mu2mpi.data.formats.table import shown, without_owner
from mu2mpi.data.telling import DataError
from mu2mpi.errors import InputError
from mu2mpi.files import check_readable
from mu2mpi.hdf5 import open_to_read

MOST_LINKS = 16


def member(path: Path, group: h5py.Group, name: str, links: int = 0) -> Any:
    """Return what a group holds under a name, of which the file at `path` speaks, perhaps behind some links.

    InputError if HDF5 would have to open what is no ordinary file, or the links go in a circle.
    """
    here: Any = group.file if name.startswith("/") else group
    for part in name.split("/"):
        if part in ("", "."):
            continue
        link = here.get(part, getlink=True)
        if isinstance(link, h5py.SoftLink | h5py.ExternalLink) and links == MOST_LINKS:
            raise DataError(
                f"{path}: what it holds is behind over {MOST_LINKS} links, or a circle of them",
                f"{path}: {shown(name)} is behind over {MOST_LINKS} links, or a circle of them",
            )
        if isinstance(link, h5py.SoftLink):
            here = member(path, here, link.path, links + 1)
            continue
        if isinstance(link, h5py.ExternalLink):
            with open_to_read(_files_named(here.file.filename, link.filename)[0]) as other:
                member(path, other, link.path, links + 1)
        here = here[part]
    return here


def check_written(path: Path, dataset: h5py.Dataset, within: tuple[object, ...] = ()) -> None:
    """Raise InputError if part of a dataset was never written; `within` are those that it is a part of."""
    everything, parts = math.prod(dataset.shape), "values"
    if dataset.is_virtual:
        _check_sources(path, dataset, within)
        try:
            there = sum(source.vspace.get_select_npoints() for source in dataset.virtual_sources())
        except RuntimeError:
            return  # a part that grows with its source has no size of its own
    elif dataset.chunks:
        there, parts = dataset.id.get_num_chunks(), "chunks"
        pairs = zip(dataset.shape, dataset.chunks, strict=True)
        everything = math.prod(-(-length // chunk) for length, chunk in pairs)
    else:
        there, parts = dataset.id.get_storage_size(), "bytes"
        everything *= dataset.id.get_type().get_size()
    if dataset.external:
        there = sum(
            min(size, max(0, os.path.getsize(_files_named(dataset.file.filename, name)[0]) - offset))
            for name, offset, size in dataset.external
        )
    if there < everything:
        of = without_owner(dataset.name)
        raise InputError(f"{path}: of {of}, only {there} of {everything} {parts} were ever written")


def _check_sources(path: Path, dataset: h5py.Dataset, within: tuple[object, ...]) -> None:
    """Check the datasets that a virtual one consists of: they are there, large enough, and written."""
    own = dataset.file.filename
    place = os.path.realpath(own), dataset.name
    if place in within:
        raise InputError(f"{path}: {without_owner(dataset.name)} is a part of itself")
    for source in dataset.virtual_sources():
        file = own if source.file_name == "." else _files_named(own, source.file_name)[0]
        with open_to_read(file) as other:
            found = member(path, other, source.dset_name) if source.dset_name.strip("/") else None
            if not isinstance(found, h5py.Dataset) or not _holds(found.shape, source):
                whole, part = without_owner(dataset.name), shown(source.dset_name)
                raise InputError(
                    f"{path}: {whole} is made of {part} in {file}, which is no dataset, or too small"
                )
            check_written(path, found, (*within, place))


def _holds(shape: tuple[int, ...], source: Any) -> bool:
    """Return whether a dataset of this shape has all that a virtual one takes of it."""
    try:
        if source.src_space.get_select_type() == h5py.h5s.SEL_ALL:
            return bool(math.prod(shape) >= source.vspace.get_select_npoints())
        _, last = source.src_space.get_select_bounds()
    except (RuntimeError, ValueError):
        return True  # it grows with its source
    return len(last) == len(shape) and all(most < size for most, size in zip(last, shape, strict=True))


def files_of(dataset: h5py.Dataset) -> set[str]:
    """Return the files in which a dataset lies: that of its own, which may be linked, and those it names."""
    own = dataset.file.filename
    virtual = [source.file_name for source in dataset.virtual_sources()] if dataset.is_virtual else []
    names = {*virtual, *(name for name, _, _ in dataset.external or ())} - {"."}
    return {own}.union(*(_files_named(own, name) for name in names))


def _files_named(path: str, name: str) -> list[str]:
    """Return the files that HDF5 may open where one names another, in its order: some, and all ordinary."""
    folders = os.path.dirname(path), ""
    places = [os.path.join(folder, of) for of in (name, os.path.basename(name)) for folder in folders]
    found = [place for place in dict.fromkeys(places) if os.path.exists(place)]
    if not found:
        raise InputError(f"{path} names the file {shown(name)}, which is not there")
    for file in found:
        check_readable(file)
    return found
