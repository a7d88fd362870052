"""The tasks of speed.py with other packages, in an environment of their own (rivals.txt).

    python rivals.py DATA.npz

reads tasks as lines of JSON from standard input, and answers each with its seconds and test accuracy. Samples
are scaled and have their bias feature. Every task ends with one evaluation on the test set, as runs of mu2mpi
do.
"""

import json
import os
import sys
from collections.abc import Callable
from importlib.metadata import version
from time import perf_counter
from typing import Any

os.environ |= {"XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false", "JAX_PLATFORMS": "cpu"}

import numpy as np

MICROBATCH = 16  # samples per vectorised call of JAX Privacy: the fastest of 16, 64 and 256
DATA = np.load(sys.argv[1])
Task = dict[str, Any]
Training = Callable[[int], Any]


def test_accuracy(model: Any) -> float:
    """Return the share of test samples whose class has the largest score."""
    return float(np.mean(np.argmax(DATA["test_z"] @ np.asarray(model).T, axis=1) == DATA["test_labels"]))


def clipped_gradient(x: Any, z: Any, labels: Any, clip_norm: float) -> Any:
    """Return the sum of the softmax gradients of samples, each clipped; a gradient is an outer product."""
    r = np.exp(z @ x.T)
    r /= r.sum(axis=1, keepdims=True)
    r[np.arange(len(labels)), labels] -= 1
    norms = np.sqrt(np.einsum("ij,ij->i", r, r) * np.einsum("ij,ij->i", z, z))
    r *= np.minimum(1, clip_norm / norms)[:, np.newaxis]
    return r.T @ z


def pfl_research(task: Task) -> Training:
    """Federation of machines with one batch each per round: an algorithm of pfl-research, in NumPy."""
    from pfl.aggregate.simulate import SimulatedBackend
    from pfl.algorithm import FederatedAlgorithm
    from pfl.common_types import Population
    from pfl.context import CentralContext
    from pfl.data.federated_dataset import FederatedDataset
    from pfl.data.sampling import get_user_sampler
    from pfl.hyperparam.base import AlgorithmHyperParams, ModelHyperParams
    from pfl.metrics import Metrics
    from pfl.model.base import Model
    from pfl.privacy import CentrallyAppliedPrivacyMechanism, GaussianMechanism
    from pfl.stats import MappedVectorStatistics

    machines, batch, clip_norm = task["machines"], task["batch"], task["clip_norm"]

    class Softmax(Model):  # type: ignore[misc]
        def __init__(self) -> None:
            self.x = np.zeros((task["classes"], DATA["z"].shape[1]), dtype=np.float32)
            self.sum_of_iterates = np.zeros_like(self.x)

        def apply_model_update(self, statistics: Any) -> Any:
            self.x -= np.float32(task["step"]) * statistics["x"].astype(np.float32)
            self.sum_of_iterates += self.x
            return self, Metrics()

    class NoisySgd(FederatedAlgorithm):  # type: ignore[misc]
        def __init__(self, rounds: int) -> None:
            super().__init__()
            self.rounds = rounds

        def get_next_central_contexts(self, model: Any, iteration: int, *_: Any) -> Any:
            if iteration == self.rounds:
                return None, model, Metrics()
            parameters = AlgorithmHyperParams(), ModelHyperParams()
            context = CentralContext(iteration, False, machines, Population.TRAIN, *parameters)
            return (context,), model, Metrics()

        def simulate_one_user(self, model: Any, user_dataset: Any, central_context: Any) -> Any:
            z, labels = user_dataset.raw_data
            start = central_context.current_central_iteration * batch % len(labels)
            used = slice(start, start + batch)
            gradient = clipped_gradient(model.x, z[used], labels[used], clip_norm)
            return MappedVectorStatistics({"x": gradient}, weight=1.0), Metrics()

        def process_aggregated_statistics(self, _: Any, __: Any, model: Any, statistics: Any) -> Any:
            return model.apply_model_update(statistics)

    # Samples are clipped as the gradient is computed; the mechanism's bound for the sum is never reached.
    mechanism = GaussianMechanism(batch * clip_norm, task["sigma"] / (batch * clip_norm))
    if task["server"] == "trusted":
        mechanism = CentrallyAppliedPrivacyMechanism(mechanism)
    order = np.random.default_rng(1).permutation(len(DATA["z"]))
    parts = order[: len(order) // machines * machines].reshape(machines, -1)
    users = {str(i): (DATA["z"][rows], DATA["labels"][rows]) for i, rows in enumerate(parts)}

    def train(rounds: int) -> Any:
        data = FederatedDataset.from_slices(users, get_user_sampler("minimize_reuse", list(users)))
        backend = SimulatedBackend(training_data=data, val_data=data, postprocessors=[mechanism])
        model = NoisySgd(rounds).run(
            AlgorithmHyperParams(), backend, Softmax(), ModelHyperParams(), send_metrics_to_platform=False
        )
        return model.sum_of_iterates / rounds

    return train


def jax_privacy(task: Task) -> Training:
    """DP-SGD with Poisson batches: clipped gradients, Gaussian noise and batches of JAX Privacy, compiled."""
    import jax
    import jax.numpy as jnp
    from jax_privacy.experimental import clipped_grad
    from jax_privacy.experimental.batch_selection import CyclicPoissonSampling
    from jax_privacy.noise_addition import gaussian_privatizer

    samples = len(DATA["z"])
    z, labels = jnp.asarray(DATA["z"]), jnp.asarray(DATA["labels"])
    largest = task["batch"] + 6 * np.sqrt(task["batch"])
    padded = int(np.ceil(largest / MICROBATCH)) * MICROBATCH

    def loss(x: Any, z: Any, label: Any) -> Any:
        scores = x @ z
        return jax.nn.logsumexp(scores) - scores[label]

    gradient = clipped_grad(
        loss,
        l2_clip_norm=task["clip_norm"],
        batch_argnums=(1, 2),
        keep_batch_dim=False,
        microbatch_size=MICROBATCH,
        nan_safe=False,
    )
    privatizer = gaussian_privatizer(noise_key=jax.random.key(1), stddev=task["sigma"])

    @jax.jit
    def step(x: Any, noise_state: Any, rows: Any, is_padding: Any) -> Any:
        total = gradient(x, z[rows], labels[rows], is_padding_example=is_padding)
        noised, noise_state = privatizer.privatize(sum_of_clipped_grads=total, noise_state=noise_state)
        return x - task["step"] * noised, noise_state

    def train(rounds: int) -> Any:
        batches = CyclicPoissonSampling(
            num_examples=samples,
            sampling_prob=task["batch"] / samples,
            iterations=rounds,
            truncated_batch_size=padded,
        ).batch_iterator(rng=1)
        x = jnp.zeros((task["classes"], z.shape[1]))
        noise_state, sum_of_iterates, skipped = privatizer.init(x), 0, rounds // 2
        for t, batch in enumerate(batches, 1):
            rows = np.zeros(padded, dtype=np.int32)
            rows[: len(batch)] = batch
            x, noise_state = step(x, noise_state, rows, np.arange(padded) >= len(batch))
            if t > skipped:
                sum_of_iterates = sum_of_iterates + x
        return np.asarray(sum_of_iterates) / (rounds - skipped)

    return train


PACKAGES = {"pfl": pfl_research, "jax-privacy": jax_privacy}


def main() -> None:
    """Compile each task when it is named first, and time it whenever it is named again."""
    trainings: dict[str, Training] = {}
    for line in sys.stdin:
        task = json.loads(line)
        if line not in trainings:
            trainings[line] = PACKAGES[task["rival"]](task)
            trainings[line](3)
            answer = {"version": version(task["rival"])}
        else:
            started = perf_counter()
            accuracy = test_accuracy(trainings[line](task["rounds"]))
            answer = {"seconds": perf_counter() - started, "accuracy": accuracy}
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
