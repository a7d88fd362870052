"""Memory that is left to a process in a control group."""

import os
from pathlib import Path

import pytest

from mu2mpi.config.experiment import Experiment
from mu2mpi.core import memory
from mu2mpi.core.errors import InputError
from mu2mpi.execution.plan import open_source


@pytest.mark.parametrize("kind", [0, 1])
def test_text_is_read_as_long_as_the_memory_of_the_job_allows(tmp_path, monkeypatch, kind):
    begins, below = (("0::", ""), ("memory:", "memory"))[kind]
    if begins not in Path("/proc/self/cgroup").read_text():
        pytest.skip("this kernel has control groups of another version")
    folder = tmp_path / below
    folder.mkdir(exist_ok=True)
    limit, used, prefix = memory.LIMITS[kind]
    monkeypatch.setattr(memory, "GROUPS", tmp_path)
    path = tmp_path / "a.csv"
    path.write_text("a,label\n" + f"0.{10**99},1\n0.{20**80},2\n" * 10**5)
    (folder / "memory.stat").write_text(f"{prefix}active_file {1 << 20}\n{prefix}inactive_file {1 << 20}\n")
    (folder / limit).write_text("1073741824\n")
    (folder / used).write_text("1063741824\n")
    assert memory.memory_left() == 10**7 + (2 << 20)
    with pytest.raises(InputError, match="GiB"):
        open_source(Experiment(data=str(path)))
    memory.check_room(path, 12e6)
    (folder / limit).write_text("max\n")
    assert 2**28 < memory.memory_left() <= os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
