"""Jobs on two SLURM nodes on separate (simulated) hosts."""

from pathlib import Path

from helpers.launch import mu2mpi

from mu2mpi.results.checkpoint import read_checkpoint
from mu2mpi.results.reader import read_result
from mu2mpi.results.records import checkpoint_path

SMALL = "machines = 4\nrounds = 50\nseed = 7\n"
LONG = 'data = "synthetic"\nsamples = 12_000\nmachines = 4\nseed = 3\n'


def use(cluster, python):
    """Use the virtual environment of this Python in jobs."""
    (cluster.folder / ".venv").unlink()
    (cluster.folder / ".venv").symlink_to(Path(python).parents[1])


def assert_same_as_alone(cluster, name):
    alone = mu2mpi("run", "--config", f"{name}.toml", "-o", "alone.h5", cwd=cluster.folder)
    assert alone.returncode == 0, alone.stderr
    found, expected = (read_result(cluster.folder / file) for file in (f"{name}.h5", "alone.h5"))
    assert found.x.tobytes() == expected.x.tobytes()
    assert found.w.tobytes() == expected.w.tobytes()


def test_a_job_on_two_nodes(nodes, cluster, python):
    use(cluster, python)
    (cluster.folder / "small.toml").write_text(SMALL)
    script = mu2mpi("job", "small.toml", "--ntasks", "4", "-o", "small.h5", cwd=cluster.folder)
    (cluster.folder / "small.sbatch").write_text(script.stdout)
    job = cluster.submit("--nodes=2", "--ntasks-per-node=2", "small.sbatch")
    cluster.finish(job)
    assert cluster.show(job)["JobState"] == "COMPLETED", cluster.logs()
    found = read_result(cluster.folder / "small.h5")
    assert found.environment["hosts"] == "h1 (2), h2 (2)"
    assert_same_as_alone(cluster, "small")


def test_a_job_resumes_after_the_loss_of_a_node(nodes, cluster, python):
    """SLURM has not noticed the loss when the ranks end; the mpirun of Open MPI returns 0."""
    use(cluster, python)
    (cluster.folder / "long.toml").write_text(LONG)
    script = mu2mpi(
        "job", "long.toml", "--ntasks=4", "--checkpoint-every=0.2", "-o", "long.h5", cwd=cluster.folder
    )
    (cluster.folder / "long.sbatch").write_text(script.stdout)
    job = cluster.submit("--nodes=2", "--ntasks-per-node=2", "long.sbatch")
    checkpoint = checkpoint_path(cluster.folder / "long.h5")
    cluster.wait(lambda: checkpoint.exists() and read_checkpoint(checkpoint).rounds_done > 0, "some rounds")
    nodes.lose("h2")
    cluster.wait(lambda: int(cluster.show(job)["Restarts"]) == 1, "the requeue")
    assert not (cluster.folder / "long.h5").exists()
    nodes.bring_back("h2")
    cluster.finish(job, requeues=1)
    assert cluster.show(job)["JobState"] == "COMPLETED", cluster.logs()
    assert_same_as_alone(cluster, "long")
