"""Base class of federated optimisation methods: options, batching, messages, noise, server steps, output."""

import math
from abc import ABC
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

from pydantic import AfterValidator, Field

from mu2mpi.core.arrays import IntArray
from mu2mpi.core.errors import InputError
from mu2mpi.core.options import Options, check_registered_name
from mu2mpi.core.registry import lookup
from mu2mpi.federation.batching import Batching, FreshSamples
from mu2mpi.federation.estimators import Estimator, QueryPoint, SecondMoments
from mu2mpi.federation.problem import Problem
from mu2mpi.federation.run_constants import RunConstants
from mu2mpi.methods.presets.practical import PresetConstants
from mu2mpi.privacy.calibration import adjust_grid, calibrate_mechanism
from mu2mpi.privacy.mechanisms.mechanism import Mechanism
from mu2mpi.privacy.released_sums import ReleasedSums

if TYPE_CHECKING:  # methods are imported to list their options, so slow imports wait until a run needs them
    from mu2mpi.federation.iterates import Iterates
else:
    Iterates = Any


class PresetOptions(Options):
    """Option ``--preset`` of methods that support presets of settings."""

    preset: Annotated[str | None, AfterValidator(partial(check_registered_name, "presets"))] = Field(
        None,
        description="preset that chooses open settings from public facts [default: settings of theory]",
        json_schema_extra={"kind": "presets"},
    )


def batch_field(description: str) -> Any:
    """Return the pydantic field of a method's option ``--batch``, the batch size."""
    return Field(None, ge=1, lt=2**32, description=description)


def tail_field(default: str) -> Any:
    """Return the pydantic field of the option ``--tail``, the share of last query points in the output."""
    description = f"share of last rounds averaged as output [default: {default}]"
    return Field(None, gt=0, le=1, description=description)


class Method(ABC):
    """Optimisation method: a gradient estimator at a query point, with batching, noise and server steps."""

    component_kind: ClassVar[str] = "methods"
    name: ClassVar[str]  # value of the option --method
    title: ClassVar[str]  # name in figures; default: the name
    summary: ClassVar[str] = ""  # short description in the help
    options: ClassVar[type[Options]] = Options
    # Settings of the practical preset beside `normalize`; None if they depend on public facts.
    preset_settings: ClassVar[dict[str, Any]] = dict.fromkeys(("clip_norm", "diameter", "eta_scale"))
    estimator: ClassVar[Estimator]  # gradient estimator that machines send
    query_point: ClassVar[QueryPoint]  # model at which machines compute gradients
    mechanism: ClassVar[str] = "gaussian"  # default of the option --mechanism
    outputs_mean_query_point: ClassVar[bool] = False  # output the mean query point, not the last one
    keeps_iterates_in_ball: ClassVar[bool] = True  # before the output, which is in any case
    is_default: ClassVar[bool] = False  # whether it is the default of --method
    supports_partial_participation: ClassVar[bool] = False  # and budgets per machine
    preset_supports_partial_participation: ClassVar[bool] = False  # also with a preset
    suits_large_noise: ClassVar[bool] = False  # whether presets make it as accurate as others at large noise

    def __init_subclass__(cls) -> None:
        if not hasattr(cls, "title"):
            cls.title = cls.name

    def select_variant(self, options: Any) -> "Method":
        """Return the variant of the method that the options select, by default the method itself."""
        return self

    def check_experiment(self, experiment: Any, options: Any) -> None:  # noqa: B027 - most methods accept any
        """Raise ValueError if settings of the experiment are incompatible with the method."""

    def audit_settings(self, machines: int, rounds: int, options: Any) -> tuple[int | None, dict[str, Any]]:
        """Return an audit's samples per machine (None: as many as used) and options of the method."""
        return None, {}

    def choose_settings(self, constants: PresetConstants) -> dict[str, Any]:
        """Return the practical preset's settings of the method by option name, from public facts alone."""
        return constants.settings(self.practical_eta_scale(constants))

    def practical_diameter_factor(self, experiment: Any) -> float:
        """Return the method's factor of the diameter that the practical preset chooses."""
        return 1.0

    def practical_eta_scale(self, constants: PresetConstants) -> float:
        """Return the practical preset's eta_scale: the learning rate in units of `max_eta`."""
        raise NotImplementedError

    def first_averaged_round(self, rounds: int, options: Any) -> int | None:
        """Return the first round that the output averages; None: the output is the last query point."""
        if (tail := getattr(options, "tail", None)) is not None:
            return rounds - math.ceil(float(tail) * rounds) + 1
        return 1 if self.outputs_mean_query_point else None

    def batching(self, problem: Problem, rounds: int | None) -> Batching:
        """Return the batching of the samples: by default one fresh sample per machine and round."""
        if problem.unequal_machines is None:
            rounds = rounds or problem.samples
            return FreshSamples(rounds, rounds)
        rounds = rounds or problem.unequal_machines.max_rounds
        if problem.max_samples_per_machine is not None:
            problem.unequal_machines.check_samples(rounds)
        return FreshSamples(problem.unequal_machines.run_participation(rounds).max_count, rounds)

    def resolve_options(self, problem: Problem, batching: Batching) -> dict[str, Any]:
        """Return values of the method's options, by name, that replace those that the user left open."""
        return {}

    def contribution_bound(self, problem: Problem) -> float:
        """Return the bound on the norm of a sample's contribution to a message (S of Lemma 4.2)."""
        return self.estimator.contribution_bound(problem.G, problem.L, problem.diameter, self.query_point)

    def clip_norm(self, problem: Problem) -> float:
        """Return the clipping norm: the smaller of ``--clip-norm`` and `contribution_bound`."""
        S = self.contribution_bound(problem)
        clip_norm = S if problem.clip_norm is None else min(problem.clip_norm, S)
        if math.isinf(clip_norm):
            raise InputError(f"The increments of --method {self.name} are unbounded. Give --clip-norm.")
        return clip_norm

    def released_sums(
        self, problem: Problem, batching: Batching, participations: int | None = None
    ) -> ReleasedSums:
        """Return the released sums of a machine with a number of participations (None: all rounds)."""
        is_cumulative = self.estimator.is_cumulative
        N = batching.rounds if participations is None else participations
        # Cumulative sums and correlated noise of a machine are also released in rounds in which it is absent.
        is_carried_over = is_cumulative or lookup("mechanisms", problem.mechanism).correlates_rounds
        T = batching.rounds if problem.trust_mode.protects_sum_only and is_carried_over else N
        return ReleasedSums(
            rounds=T,
            machines=problem.machines,
            parameters=math.prod(self.estimator.message_shape(problem.model_rows, problem.features)),
            clip_norm=self.clip_norm(problem),
            max_gradient_norm=problem.G,
            affected_sums=T if is_cumulative else batching.max_uses_per_sample(N),
            increments_per_message=batching.max_batch_size * (N if is_cumulative else 1),
            samples=batching.samples_per_machine,
            batch_size=float(batching.batch_size(1)),
            aggregated_machines=problem.machines if problem.uses_aggregate_noise else 1,
            noise_shares=problem.noise_shares,
            subsampling=batching.subsampling,
            is_cumulative=is_cumulative,
            are_second_moments=isinstance(self.estimator, SecondMoments),
            mechanism_options=problem.mechanism_options,
            neighbours=problem.neighbours,
        )

    def noise_limited_eta(self, problem: Problem, batching: Batching, mechanism: Mechanism) -> float:
        """Return the learning rate rho D N / (2 C T sqrt(d)) of Theorems 5.2 and 6.2, for dominant noise."""
        T, D, sensitivity = batching.rounds, problem.diameter, mechanism.sensitivity
        if problem.per_machine_plan is None:
            eta = problem.budget.rho * D * problem.noise_reduction / (sensitivity * T * math.sqrt(problem.d))
            return eta / mechanism.uncancelled_std_ratio
        noise_std = problem.per_machine_plan.noise_std  # of the averaged message
        return D / (noise_std * math.sqrt(problem.d * T)) if noise_std else math.inf

    def max_eta(self, problem: Problem, batching: Batching) -> float:
        """Return the theory's learning rate without noise: 1 / (4 L T) at averages, 1 / L at iterates."""
        L = problem.smoothness
        return 1 / (4 * L * batching.rounds) if self.query_point.is_averaged else 1 / L

    def theory_eta(self, problem: Problem, batching: Batching, mechanism: Mechanism) -> float:
        """Return the default learning rate eta, that of the method's theory.

        With a bound V on the squared error of gradients: D / sqrt(V sum of t^2) at averages (Cutkosky, 2019),
        1 / (1 / max_eta + sqrt(V T) / D) at iterates (Dekel et al., 2012); see docs/background/methods.md.
        """
        T, D, max_eta = batching.rounds, problem.diameter, self.max_eta(problem, batching)
        error = self.gradient_error(problem, batching, mechanism)
        if self.query_point.is_averaged:
            return min(D / (error * math.sqrt(T * (T + 1) * (2 * T + 1) / 6)), max_eta)
        return 1 / (1 / max_eta + error * math.sqrt(T) / D)

    def gradient_error(self, problem: Problem, batching: Batching, mechanism: Mechanism) -> float:
        """Return sqrt(V), a bound on the RMS error of an average gradient, from sampling and noise."""
        batch_size = batching.processed_samples_until(batching.rounds) / batching.rounds
        sigma, noise_reduction = problem.noise_std_and_reduction(mechanism)
        noise_error = math.sqrt(problem.d) * sigma / (noise_reduction * batch_size)
        sampling_error = self.clip_norm(problem) / math.sqrt(problem.effective_machines * batch_size)
        return math.hypot(sampling_error, noise_error)

    def step_size(self, eta: float, rounds: int, t: int) -> float:
        """Return the step size of round t, a factor of the averaged message: eta, or eta times a weight."""
        return eta if self.estimator.is_cumulative else eta * self.query_point.importance_weight(t)

    def is_proven_for(self, problem: Problem, mechanism: Mechanism) -> bool:
        """Whether theorems of the method cover a run: equal machines and the default mechanism."""
        is_default = isinstance(mechanism, lookup("mechanisms", self.mechanism))
        return is_default and problem.unequal_machines is None

    def excess_loss_bound(self, problem: Problem, batching: Batching, mechanism: Mechanism) -> float:
        """Return the bound on the excess loss of the method's theorem at `theory_eta`, or NaN without one."""
        return math.nan

    def state_names(self, options: Any) -> tuple[str, ...]:
        """Return the names of state arrays of `step`, initially zero, beside w, x and x_previous."""
        return ()

    def iterates_reveal_messages(self, options: Any) -> bool:
        """Whether an adversary can compute the averaged messages from consecutive iterates."""
        return type(self).step is Method.step

    def step(self, iterates: Iterates, t: int, message_sum: IntArray, step_factor: float) -> None:
        """Take the step w_{t+1} = proj(w_t - step_factor message_sum); average it into x_{t+1}."""
        iterates.apply_regulariser(t)
        iterates.projected_step(t, message_sum, step_factor)

    def run_constants(self, problem: Problem, batching: Batching) -> RunConstants:
        """Return the constants of a run of the method, with its calibrated mechanism and learning rate."""
        from mu2mpi.privacy.noise.noise_stream import check_stream_limits

        released_sums = self.released_sums(problem, batching)
        check_stream_limits(released_sums.parameters, problem.machines, released_sums.rounds)
        mechanism_class: type[Mechanism] = lookup("mechanisms", problem.mechanism)
        if not mechanism_class.supports(released_sums):
            implied = f"Use another --method, or another --server than {problem.server}, which implies it."
            raise InputError(
                f"--mechanism {mechanism_class.name} has no privacy accountant for --method {self.name}. "
                + (implied if problem.trust_mode.mechanism else "Leave --mechanism out.")
            )
        if problem.unequal_machines is None:
            mechanism = calibrate_mechanism(mechanism_class, problem.budget, released_sums)
            (mechanism,) = adjust_grid([mechanism], released_sums, problem.budget)
        else:
            from mu2mpi.federation.unequal_machines import calibrate_machines

            plan = calibrate_machines(
                problem.unequal_machines,
                problem.budget,
                mechanism_class,
                batching.rounds,
                partial(self.released_sums, problem, batching),
                protects_sum_only=problem.trust_mode.protects_sum_only,
                is_cumulative=self.estimator.is_cumulative,
            )
            problem, mechanism = replace(problem, per_machine_plan=plan), plan.least_private_mechanism
        theory_eta = self.theory_eta(problem, batching, mechanism)
        eta = theory_eta if problem.eta_scale is None else problem.eta_scale * self.max_eta(problem, batching)
        if not (math.isfinite(mechanism.sigma) and eta > 0):
            raise InputError(
                f"--rho {problem.budget.rho:g} with --diameter {problem.diameter:g} exceeds the range of "
                "floating-point numbers. Use less extreme values."
            )
        bound = self.excess_loss_bound(problem, batching, mechanism) if eta == theory_eta else math.nan
        return RunConstants(
            problem=problem,
            estimator=self.estimator,
            query_point=self.query_point,
            batching=batching,
            mechanism=mechanism,
            S=self.contribution_bound(problem),
            eta=eta,
            step_size=partial(self.step_size, eta, batching.rounds),
            take_server_step=self.step,
            has_plain_step=type(self).step is Method.step and not problem.l2,
            state_names=self.state_names(problem.method_options),
            iterates_reveal_messages=self.iterates_reveal_messages(problem.method_options),
            first_averaged_round=self.first_averaged_round(batching.rounds, problem.method_options),
            excess_loss_bound=bound,
        )


def check_batch(batch: int, samples: int, sample_owner: str) -> None:
    """Raise InputError if a batch size exceeds the number of samples of their owner."""
    if batch > samples:
        raise InputError(f"--batch must be at most {samples} (samples of {sample_owner}), got {batch}.")
