"""Available memory within the limits of a control group."""

import os
from pathlib import Path

import pytest

from mu2mpi.config.experiment import Experiment
from mu2mpi.core import memory
from mu2mpi.core.errors import InputError
from mu2mpi.execution.plan import open_source


@pytest.mark.parametrize("kind", [0, 1])
def test_a_text_file_must_fit_into_the_memory_of_the_job(tmp_path, monkeypatch, kind):
    line, subfolder = (("0::", ""), ("memory:", "memory"))[kind]
    if line not in Path("/proc/self/cgroup").read_text():
        pytest.skip("this kernel has control groups of another version")
    folder = tmp_path / subfolder
    folder.mkdir(exist_ok=True)
    limit, usage, prefix = memory.CGROUP_MEMORY_FILES[kind]
    monkeypatch.setattr(memory, "CGROUP_ROOT", tmp_path)
    path = tmp_path / "a.csv"
    path.write_text("a,label\n" + f"0.{10**99},1\n0.{20**80},2\n" * 10**5)
    (folder / "memory.stat").write_text(f"{prefix}active_file {1 << 20}\n{prefix}inactive_file {1 << 20}\n")
    (folder / limit).write_text("1073741824\n")
    (folder / usage).write_text("1063741824\n")
    assert memory.available_memory() == 10**7 + (2 << 20)
    with pytest.raises(InputError, match="GiB"):
        open_source(Experiment(data=str(path)))
    memory.check_fits_in_memory(path, 12e6)
    (folder / limit).write_text("max\n")
    assert 2**28 < memory.available_memory() <= os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
