"""Jobs on two nodes of a SLURM, which are hosts of their own."""

from pathlib import Path

from launch import mu2mpi

from mu2mpi.results.reader import read_result

SMALL = "machines = 4\nrounds = 50\nseed = 7\n"


def test_a_job_on_two_nodes(nodes, cluster, python):
    (cluster.folder / ".venv").unlink()
    (cluster.folder / ".venv").symlink_to(Path(python).parents[1])
    (cluster.folder / "small.toml").write_text(SMALL)
    script = mu2mpi("job", "small.toml", "--ntasks", "4", "-o", "small.h5", cwd=cluster.folder)
    (cluster.folder / "small.sbatch").write_text(script.stdout)
    job = cluster.submit("--nodes=2", "--ntasks-per-node=2", "small.sbatch")
    cluster.finish(job)
    assert cluster.show(job)["JobState"] == "COMPLETED", cluster.logs()
    found = read_result(cluster.folder / "small.h5")
    assert found.environment["hosts"] == "h1 (2), h2 (2)"
    alone = mu2mpi("run", "--config", "small.toml", "-o", "alone.h5", cwd=cluster.folder)
    assert alone.returncode == 0, alone.stderr
    expected = read_result(cluster.folder / "alone.h5")
    assert found.x.tobytes() == expected.x.tobytes()
    assert found.w.tobytes() == expected.w.tobytes()
