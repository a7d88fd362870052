"""Shared memory that nobody has is removed; that which a process has, or makes just now, is not."""

import mmap
import os

from helpers.shared_memory import SECONDS, remove_leftovers


def test_only_memory_that_nobody_has_is_removed(tmp_path):
    for name in ("mpich_shm_left", "mpich_shm_held", "mpich_shm_new", "another"):
        (tmp_path / name).write_bytes(bytes(mmap.PAGESIZE))
        if name != "mpich_shm_new":
            os.utime(tmp_path / name, (0, (tmp_path / name).stat().st_mtime - 2 * SECONDS))
    with (tmp_path / "mpich_shm_held").open("r+b") as held, mmap.mmap(held.fileno(), 0):
        remove_leftovers(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["another", "mpich_shm_held", "mpich_shm_new"]
