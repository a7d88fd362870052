"""The page on clusters, followed on two nodes of a real SLURM: what a block submits is over before the next."""

import dataclasses
import re
import sys
from pathlib import Path

from launch import SETTINGS

from mu2mpi.results.reader import read_result

DOCS = Path(__file__).parents[2] / "docs"
sys.path.insert(0, str(DOCS / "_ext"))
from blocks import Session, blocks  # noqa: E402


def test_the_page_does_what_it_shows(nodes, cluster):
    # What stands for ssh on these nodes, and leads to one of them.
    folder = nodes.configuration.parent
    variables = {**SETTINGS, "VIRTUAL_ENV": sys.prefix, "HYDRA_LAUNCHER_EXEC": str(folder / "ssh")}
    printed = []
    with Session(cluster.folder, variables, timeout=120) as session:
        for block in blocks((DOCS / "study/clusters.md").read_text()):
            text = block.text.replace("mpirun -hosts node1,node2", f"{folder}/on h1 mpirun -hosts h1,h2")
            printed.append(session.run(dataclasses.replace(block, text=text)))
            cluster.wait(lambda: not cluster.command("squeue", "-h").strip(), "an empty queue")
    said = "\n".join(printed)
    assert "1 done, 0 running, 0 left, 0 failed" in said
    assert re.search(r"hosts +h1 \(\d\), h2 \(\d\)", said), said
    assert "4 done, 0 running, 0 left, 0 failed" in said
    assert "Test loss and accuracy of the output" in said
    assert "#SBATCH --account=physics" in said
    assert "#PBS" in said
    alone, hosts = (read_result(cluster.folder / "runs" / f"{name}.h5") for name in ("my", "hosts"))
    assert hosts.environment["hosts"] == "h1 (2), h2 (2)"
    assert alone.environment["ranks"] == hosts.environment["ranks"] == 4
