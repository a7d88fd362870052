"""FedAvg: several local steps of each machine between two messages, for samples or whole machines."""

import math
from dataclasses import replace
from typing import Any, ClassVar, Literal

from pydantic import Field

from mu2mpi.core.arrays import IntArray
from mu2mpi.core.errors import InputError
from mu2mpi.core.lazy import np
from mu2mpi.core.registry import register
from mu2mpi.federation.batching import CyclicBatches, LocalBatches, SampledMachines
from mu2mpi.federation.estimators import LAST_ITERATE, Estimator
from mu2mpi.federation.problem import Problem
from mu2mpi.federation.run_constants import RunConstants
from mu2mpi.methods.dp_gd import DpGd, DpGdOptions
from mu2mpi.methods.dp_sgd import check_accounted_rounds
from mu2mpi.methods.method import Iterates, Method, batch_field, check_batch
from mu2mpi.methods.presets.practical import PresetConstants, round_to_four_digits
from mu2mpi.privacy.mechanisms.mechanism import Mechanism
from mu2mpi.privacy.released_sums import ReleasedSums

MAX_LOCAL_STEPS = 1000  # With more, sums of the noise of a round might overflow the grid.
_ADAM_DECAY = 0.99  # of squares (Reddi et al., 2021)
_ADAM_FLOOR = 1e-3  # added to their roots, in units of the clipping norm per root of the dimension


class LocalOptions(DpGdOptions):
    """Options of methods with local steps: their number and batches, averaging, and the server's momentum."""

    local_steps: int = Field(5, ge=1, le=MAX_LOCAL_STEPS, description="number of local steps in each round")
    batch: int | None = batch_field(
        "batch size of a local step, in passes over a machine's samples [default: all of its samples]"
    )


class FedAvgOptions(LocalOptions):
    """Options of FedAvg: local steps, the server's optimiser, and what is hidden."""

    server_optimizer: Literal["average", "adam"] = Field(
        "average", description="server step: to the average of the local models, or Adam's"
    )
    unit: Literal["sample", "machine"] = Field(
        "sample", description="what is hidden: each sample, or each machine with all its samples"
    )
    participants: int | None = Field(
        None,
        ge=1,
        lt=2**32,
        description="expected number of machines per round of --unit machine [default: a tenth, at least 10]",
    )


@register
class FedAvg(DpGd):
    """DP-FedAvg: McMahan et al., "Learning differentially private recurrent language models", 2018.

    Each local step has noise, unless whole machines are hidden. Server optimisers are those of FedOpt: Reddi
    et al., "Adaptive federated optimization", 2021 (docs/background/methods.md).
    """

    name, title = "fedavg", "DP-FedAvg"
    summary = "several local steps between messages; --unit machine hides whole machines"
    options: ClassVar[type[DpGdOptions]] = FedAvgOptions
    estimator, query_point = Estimator("local-steps", 1, is_cumulative=False), LAST_ITERATE
    preset_settings = dict.fromkeys(("clip_norm", "diameter", "rounds", "tail", "eta_scale"))
    supports_partial_participation = False

    def select_variant(self, options: Any) -> Method:
        return _MACHINE_UNIT if getattr(options, "unit", "sample") == "machine" else self

    def check_experiment(self, experiment: Any, options: Any) -> None:
        """Raise ValueError unless every machine adds Gaussian noise of its own in each local step."""
        is_shared = experiment.trust_mode.protects_sum_only or experiment.noise == "aggregate"
        if is_shared or experiment.chosen_mechanism != self.mechanism:
            raise ValueError(
                f"--method {self.name} adds Gaussian noise in each local step of a machine. Use --server "
                "untrusted without --noise and --mechanism, or --method fedavg --unit machine."
            )
        if getattr(options, "participants", None) is not None:
            raise ValueError("--participants needs --unit machine. Otherwise all machines take part.")

    def audit_settings(self, machines: int, rounds: int, options: Any) -> tuple[int, dict[str, Any]]:
        """Return the audit's samples per machine, two, and local steps on both: they reach the claim."""
        return 2, {"batch": 2}

    def choose_settings(self, constants: PresetConstants) -> dict[str, Any]:
        """Return the practical preset's settings: those of DP-GD, without momentum and with local steps."""
        options = constants.experiment.method_options
        return self.settings_with_gain(constants, options.local_steps / (1 - (options.momentum or 0)))

    def batching(self, problem: Problem, rounds: int | None) -> LocalBatches:
        """Return cyclic batches of local steps, by default of as many as `DpGd.batching` has rounds."""
        H, K = problem.method_options.local_steps, problem.method_options.batch or problem.samples
        check_batch(K, problem.samples, "a machine")
        rounds = rounds or max(2, math.ceil(super().batching(problem, None).rounds / H))
        n = min(problem.samples, rounds * H * K)
        read = n if problem.samples == K else H * K
        return LocalBatches(n, rounds, read, local_steps=H, local_batch=K)

    def released_sums(
        self, problem: Problem, batching: Any, participations: int | None = None
    ) -> ReleasedSums:
        """Return the released sums: one for each local step of a machine, of which its messages are sums."""
        rounds, terms = batching.local_steps * batching.rounds, batching.samples_per_round
        return replace(super().released_sums(problem, batching), rounds=rounds, increments_per_message=terms)

    def theory_eta(self, problem: Problem, batching: Any, mechanism: Mechanism) -> float:
        """Return the learning rate of DP-GD with as many steps."""
        steps = batching.rounds * batching.local_steps
        batches = CyclicBatches(batching.samples_per_machine, steps, batching.local_batch)
        return super().theory_eta(problem, batches, mechanism)

    def excess_loss_bound(self, problem: Problem, batching: Any, mechanism: Mechanism) -> float:
        return math.nan

    def run_constants(self, problem: Problem, batching: Any) -> RunConstants:
        constants = super().run_constants(problem, batching)
        return replace(constants, estimator=replace(self.estimator, local_steps=batching.local_steps))

    def state_names(self, options: Any) -> tuple[str, ...]:
        is_adam = getattr(options, "server_optimizer", None) == "adam"
        return ("gradient_mean", "gradient_mean_square") if is_adam else super().state_names(options)

    def iterates_reveal_messages(self, options: Any) -> bool:
        return not self.state_names(options)

    def step(self, iterates: Iterates, t: int, message_sum: IntArray, step_factor: float) -> None:
        """Move to the average of the local models, with momentum if given; or take a step of Adam.

        Adam's step has about the norm of the longest step to an average.
        """
        constants, options = iterates.constants, iterates.constants.problem.method_options
        if getattr(options, "server_optimizer", None) != "adam":
            super().step(iterates, t, message_sum, step_factor)
            return
        mean, mean_square = (iterates.optimizer_state[name] for name in self.state_names(options))
        beta = 0.9 if options.momentum is None else options.momentum
        unit = constants.sums_per_round * constants.mechanism.clip_norm / math.sqrt(constants.problem.d)
        gradient = message_sum * (step_factor / constants.step_size(t) / unit)
        mean += (1 - beta) * (gradient - mean)
        mean_square += (1 - _ADAM_DECAY) * (gradient * gradient - mean_square)
        scale = np.sqrt(mean_square / (1 - _ADAM_DECAY**t)) + _ADAM_FLOOR
        iterates.apply_regulariser(t)
        iterates.w -= constants.step_size(t) * unit / (1 - beta**t) * mean / scale
        iterates.projected_step(t, message_sum, 0.0)


class _FedAvgOfMachines(FedAvg):
    """FedAvg that hides whole machines, by noise in sums of clipped messages of random machines."""

    mechanism = "poisson-machines"

    def check_experiment(self, experiment: Any, options: Any) -> None:
        """Raise ValueError unless noise protects the sum of messages, and is that of sampled machines."""
        if not experiment.trust_mode.protects_sum_only or experiment.chosen_mechanism != self.mechanism:
            raise ValueError(
                f"--unit machine hides machines in sums, got --server {experiment.server} with "
                f"{experiment.chosen_mechanism} noise. Use --server trusted or aggregated and no --mechanism."
            )

    def audit_settings(self, machines: int, rounds: int, options: Any) -> tuple[int, dict[str, Any]]:
        """Return the audit's samples per machine, one, and a sampling probability of 1/3."""
        return 1, {"batch": 1} | ({} if options.participants else {"participants": round(machines / 3)})

    def choose_settings(self, constants: PresetConstants) -> dict[str, Any]:
        """Return the practical preset's settings: messages that most machines fill, in 20 to 400 rounds."""
        experiment, gain = constants.experiment, 1 / (1 - (constants.experiment.momentum or 0))
        C = round_to_four_digits(constants.clip_norm / 4)
        constants = constants._replace(clip_norm=C, effective_clip_norm=experiment.clip_norm or C)
        return constants.multi_pass_settings(constants.machines, (20, 400), 0.25, gain)

    def contribution_bound(self, problem: Problem) -> float:
        """Return the bound on a message's norm: that of a gradient for each local step."""
        return float(problem.method_options.local_steps * problem.G)

    def batching(self, problem: Problem, rounds: int | None) -> SampledMachines:
        """Return the local steps of sampled machines; by default 100 rounds."""
        batching = super().batching(problem, rounds or 100)
        participants, machines = expected_participants(problem), problem.machines
        if participants > machines:
            raise InputError(f"--participants must be at most {machines} (machines), got {participants}.")
        setup = f"--unit machine with --participants {participants}"
        check_accounted_rounds(problem, batching.rounds, machines, participants, setup)
        return SampledMachines(**vars(batching), probability=participants / machines)

    def resolve_options(self, problem: Problem, batching: Any) -> dict[str, Any]:
        return {"participants": expected_participants(problem)}

    def released_sums(
        self, problem: Problem, batching: Any, participations: int | None = None
    ) -> ReleasedSums:
        """Return the released sums: one in each round, of a message of every machine that takes part."""
        C, sums = self.clip_norm(problem), super().released_sums(problem, batching)
        terms = math.ceil(batching.samples_per_round * problem.local_clip_norm(C) / C)
        size = batching.probability * batching.samples_per_machine
        return replace(sums, rounds=batching.rounds, increments_per_message=terms, batch_size=size)

    def gradient_error(self, problem: Problem, batching: Any, mechanism: Mechanism) -> float:
        """Return the RMS error sqrt(V) of an average message."""
        noise, q = math.sqrt(problem.d) * mechanism.sigma / problem.noise_reduction, batching.probability
        return math.hypot(noise / q, self.clip_norm(problem) / math.sqrt(q * problem.machines))

    def theory_eta(self, problem: Problem, batching: Any, mechanism: Mechanism) -> float:
        """Return the learning rate of DP-GD with such an error, for rounds of H local steps."""
        H, error = batching.local_steps, self.gradient_error(problem, batching, mechanism)
        b = 2 * error * math.sqrt(batching.rounds) / problem.diameter
        return float((1 - (problem.method_options.momentum or 0)) / (H * problem.smoothness + b))


def expected_participants(problem: Problem) -> int:
    """Return the expected number of machines per round: by default a tenth, at least 10."""
    return int(problem.method_options.participants or min(problem.machines, max(10, problem.machines // 10)))


_MACHINE_UNIT = _FedAvgOfMachines()
