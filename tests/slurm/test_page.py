"""Code blocks of the page on clusters, on two nodes of a real SLURM; jobs of a block end before the next."""

import dataclasses
import re
import sys
from pathlib import Path

from blocks import Session, blocks
from helpers.launch import SETTINGS
from helpers.page_commands import PIP, cheaper

from mu2mpi.results.reader import read_result

DOCS = Path(__file__).parents[2] / "docs"


def test_the_page_does_what_it_shows(nodes, cluster):
    folder = nodes.configuration.parent
    # The mpirun of the page runs on one of the nodes, and reaches the other by a substitute for ssh.
    on_nodes = f"HYDRA_LAUNCHER_EXEC={folder}/ssh {folder}/on h1 mpirun -hosts h1,h2"
    printed = []
    # Nothing is installed, and the command module does nothing.
    stand_ins = {**PIP, "BASH_FUNC_module%%": "() { :; }"}
    environment = {**SETTINGS, **stand_ins, "VIRTUAL_ENV": sys.prefix}
    with Session(cluster.folder, environment, timeout=120) as session:
        for block in blocks((DOCS / "study/clusters.md").read_text()):
            text = cheaper(block.text).replace("mpirun -hosts node1,node2", on_nodes)
            printed.append(session.run(dataclasses.replace(block, text=text)))
            cluster.wait(lambda: not cluster.command("squeue", "-h").strip(), "an empty queue")
    output = "\n".join(printed)
    assert re.search(r"hosts +h1 \(1\), h2 \(1\)", output)
    assert "4 runs, 4 of which are in runs/sweep" in output
    assert "Test loss and accuracy of the output" in output
    assert "#SBATCH --account=physics" in output
    assert "\nmodule load openmpi\n" in (cluster.folder / "my.sbatch").read_text()
    found = read_result(cluster.folder / "runs" / "hosts.h5")
    assert found.environment["hosts"] == "h1 (1), h2 (1)"
