"""Keys: experiments that differ have other noise."""

from mu2mpi.config.experiment import Experiment
from mu2mpi.execution.plan import Keys
from mu2mpi.privacy.noise.stream import root_key


def test_the_same_seed_does_not_give_the_same_noise_to_different_experiments():
    """Else the messages of two runs with one secret seed and different rho would give it away."""
    root = root_key(1)
    experiment = Experiment(machines=2, rounds=10, seed=1)
    keys = {Keys.noise_key(root, experiment)}
    for changed in (
        {"rho": 8.0},
        {"machines": 3},
        {"rounds": 9},
        {"diameter": 0.2},
        {"clip_norm": 1.0},
        {"normalize": "unit"},
        {"eta_scale": 2.0},
    ):
        keys.add(Keys.noise_key(root, experiment.having(**changed)))
    assert len(keys) == 8
    for unsent in ({"delta": 1e-6}, {"evaluations": 3}, {"method": "mu2-sgd", "preset": "practical"}):
        assert Keys.noise_key(root, experiment.having(**unsent)) in keys
