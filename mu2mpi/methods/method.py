"""What a method is to the rest of the package: its options, samples, messages, noise, steps and output.

Method modules are imported to list their options, so what is slow to import waits until a run needs it.
"""

import math
from abc import ABC
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

from pydantic import AfterValidator, Field

from mu2mpi.core.errors import InputError
from mu2mpi.core.options import Options, registered
from mu2mpi.core.registry import find
from mu2mpi.data.source import PublicFacts
from mu2mpi.federation.batching import Fresh, Sampling
from mu2mpi.federation.estimators import Estimator, Query
from mu2mpi.federation.run_constants import RunConstants
from mu2mpi.federation.task import Task
from mu2mpi.methods.presets.practical import Choices, PracticalPreset, rounded
from mu2mpi.privacy.mechanisms.mechanism import Mechanism, calibrated
from mu2mpi.privacy.release import Release

if TYPE_CHECKING:
    from mu2mpi.federation.iterates import Integers, Iterates


class PresetOptions(Options):
    """Preset of an experiment."""

    preset: Annotated[str | None, AfterValidator(partial(registered, "presets"))] = Field(
        None,
        description="settings chosen from public facts where none are given [default: those of theory]",
        json_schema_extra={"kind": "presets"},
    )


def batch_field(description: str) -> Any:
    """Return the option of a method that draws batches, which it describes: how many samples in each."""
    return Field(None, ge=1, lt=2**32, description=description)


def tail_field(default: str) -> Any:
    """Return the option of a method that can put out a mean, and else puts out what is said here."""
    words = "share of the rounds, the last ones, of whose query points the output is the mean"
    return Field(None, gt=0, le=1, description=f"{words} [default: {default}]")


class Method(ABC):
    """An estimator at a query point, with its own sampling, noise and steps.

    By default a fresh sample in each round, Gaussian noise, and steps of the learning rate.
    """

    kind: ClassVar[str] = "methods"
    name: ClassVar[str]  # what the user calls it
    title: ClassVar[str]  # what figures do, by default the same
    summary: ClassVar[str] = ""  # a few words for its place in the help
    options: ClassVar[type[Options]] = Options
    presets: ClassVar[tuple[str, ...]] = ()  # options that choose other settings, and mean nothing else
    # Settings of the practical preset beside `normalize`: None where they depend on facts
    chooses: ClassVar[dict[str, Any]] = dict.fromkeys(("clip_norm", "diameter", "eta_scale"))
    estimator: ClassVar[Estimator]  # what machines send
    query: ClassVar[Query]  # where they take gradients
    mechanism: ClassVar[str] = "gaussian"  # what hides what they send, unless the user names another
    takes_mean: ClassVar[bool] = False  # whether the output is the mean of all query points, or the last
    is_default: ClassVar[bool] = False  # whether who names none gets it
    takes_absence: ClassVar[bool] = False  # whether machines may be away, and differ in their budgets,
    preset_knows_absence: ClassVar[bool] = False  # also with a preset

    def __init_subclass__(cls) -> None:
        if not hasattr(cls, "title"):
            cls.title = cls.name
        if issubclass(cls.options, PresetOptions):
            cls.presets = ("preset",)

    def chosen(self, options: Any) -> "Method":
        """Return the method that its options ask for: itself, but for one with switches."""
        return self

    def check(self, asked: Any, options: Any) -> None:  # noqa: B027 - most take all
        """Raise ValueError if what the user said does not go together; the message says what would."""

    def worst_case(self, machines: int, rounds: int, options: Any) -> tuple[int | None, dict[str, Any]]:
        """Return how many samples of a machine an audit needs, None for those used, and options left open."""
        return None, {}

    def practical(self, preset: PracticalPreset, asked: Any, facts: PublicFacts) -> dict[str, Any]:
        """Return the settings of the practical preset: beyond the theorems, from public facts alone."""
        chosen = preset.choices(asked, facts, self.widening(asked))
        eta_scale = rounded(self.practical_scale(asked, facts, chosen))
        return {"clip_norm": chosen.clip_norm, "diameter": chosen.diameter, "eta_scale": eta_scale}

    def widening(self, asked: Any) -> float:
        """Return how many times wider than those of others the ball of the practical mode is."""
        return 1.0

    def practical_scale(self, asked: Any, facts: PublicFacts, chosen: Choices) -> float:
        """Return the learning rate of the practical mode, in units of `largest_rate`."""
        raise NotImplementedError

    def mean_from(self, rounds: int, options: Any) -> int | None:
        """Return the first round whose query point counts in the output, their mean; None for the last."""
        if (tail := getattr(options, "tail", None)) is not None:
            return rounds - math.ceil(float(tail) * rounds) + 1
        return 1 if self.takes_mean else None

    def sampling(self, task: Task, rounds: int | None) -> Sampling:
        """Return rounds and batches, by default a fresh sample a round; InputError if there are too few."""
        if task.unequal is None:
            rounds = rounds or task.samples
            return Fresh(rounds, rounds)
        rounds = rounds or task.unequal.longest
        if task.most is not None:
            task.unequal.check_samples(rounds)
        return Fresh(task.unequal.in_rounds(rounds).max_count, rounds)

    def completed(self, task: Task, sampling: Sampling) -> dict[str, Any]:
        """Return the values of own options that the user left open."""
        return {}

    def increment_bound(self, task: Task) -> float:
        """Return the norm that what one sample adds to a message never passes (Lemma 4.2)."""
        return self.estimator.bound(task.G, task.L, task.diameter, self.query)

    def clip_norm(self, task: Task) -> float:
        """Return the norm to which that is clipped: its bound, or less if the user says; or InputError."""
        S = self.increment_bound(task)
        clip = S if task.clip_norm is None else min(task.clip_norm, S)
        if math.isinf(clip):
            raise InputError("increments of this method have no bound, so it needs a clip_norm")
        return clip

    def release(self, task: Task, sampling: Sampling, present: int | None = None) -> Release:
        """Return what is to be hidden, of a machine that takes part in so many rounds, or in all."""
        lasts = self.estimator.lasts
        N = sampling.rounds if present is None else present
        # Sums are released, and noise that belongs together, also while a machine is away.
        stays = lasts or find("mechanisms", task.mechanism).stays
        T = sampling.rounds if task.trust.hides_sums and stays else N
        return Release(
            rounds=T,
            machines=task.machines,
            parameters=task.d,
            clip_norm=self.clip_norm(task),
            gradient_norm=task.G,
            touched=T if lasts else sampling.touches(N),
            summed=sampling.most * (N if lasts else 1),
            samples=sampling.owned,
            drawn=float(sampling.size(1)),
            draws=task.machines if task.aggregate_noise else 1,
            parts=task.parts,
            chance=sampling.chance,
            lasts=lasts,
            options=task.mechanism_options,
        )

    def noise_rate(self, task: Task, sampling: Sampling, mechanism: Mechanism) -> float:
        """Return rho D N / (2 C T sqrt(d)) of Theorems 5.2 and 6.2; by its noise where machines differ."""
        T, D, C = sampling.rounds, task.diameter, mechanism.clip_norm
        if task.per_machine is None:
            return task.budget.rho * D * task.shared / (2 * C * T * math.sqrt(task.d)) / mechanism.heaping
        noise = task.per_machine.noise_std
        return D / (noise * math.sqrt(task.d * T)) if noise else math.inf

    def largest_rate(self, task: Task, sampling: Sampling) -> float:
        """Return the learning rate that no noise would make smaller."""
        L = task.smoothness
        return 1 / (4 * L * sampling.rounds) if self.query.averages else 1 / L

    def base_rate(self, task: Task, sampling: Sampling, mechanism: Mechanism) -> float:
        """Return the learning rate of the method's theory.

        For gradients at averages D / sqrt(V sum of t^2) (Cutkosky, 2019), and at iterates 1 / (1 / largest +
        sqrt(V T) / D) (Dekel et al., 2012), where V bounds the squared error of an average gradient: see
        docs/background/methods.md.
        """
        T, D, largest = sampling.rounds, task.diameter, self.largest_rate(task, sampling)
        error = self.error(task, sampling, mechanism)
        if self.query.averages:
            return min(D / (error * math.sqrt(T * (T + 1) * (2 * T + 1) / 6)), largest)
        return 1 / (1 / largest + error * math.sqrt(T) / D)

    def error(self, task: Task, sampling: Sampling, mechanism: Mechanism) -> float:
        """Return the root of what the squared error of an average gradient is at most in expectation."""
        size = sampling.drawn(sampling.rounds) / sampling.rounds
        sigma, shared = task.noise_of(mechanism)
        noise = math.sqrt(task.d) * sigma / (shared * size)
        return math.hypot(self.clip_norm(task) / math.sqrt(task.effective_machines * size), noise)

    def step_size(self, eta: float, rounds: int, t: int) -> float:
        """Return the factor of the averaged message of round t: eta alpha_t, or if sums are sent, eta."""
        return eta if self.estimator.lasts else eta * self.query.importance(t)

    def loss_bound(self, task: Task, sampling: Sampling, mechanism: Mechanism, is_own_rate: bool) -> float:
        """Return what the expected excess loss is at most, in nats; NaN if nothing is known."""
        return math.nan

    def state(self, options: Any) -> tuple[str, ...]:
        """Names of arrays that `step` needs beside w, x and the x before it; zero at first."""
        return ()

    def has_plain_step(self, options: Any) -> bool:
        """Whether a step within the ball is the message, scaled, so that iterates reveal messages."""
        return type(self).step is Method.step

    def step(self, iterates: "Iterates", t: int, total: "Integers", scale: float) -> None:
        """Step from round t to t + 1: w_{t+1} = proj(w_t - scale total), averaged into x_{t+1}."""
        if iterates.l2:
            iterates.regularise(t)
        iterates.descend(t, total, scale)

    def constants(self, task: Task, sampling: Sampling) -> RunConstants:
        """Return the constants of a run; or InputError if no noise, grid or finite numbers can be found."""
        from mu2mpi.privacy.noise.noise_stream import check_numbers

        release = self.release(task, sampling)
        check_numbers(task.d, task.machines, sampling.rounds)
        kind: type[Mechanism] = find("mechanisms", task.mechanism)
        if not kind.accounts_for(release):
            own = f"give another server than {task.server}, whose noise that is, or another method"
            raise InputError(
                f"it is not known how private mechanism = {kind.name} makes what method = {self.name} sends; "
                + (own if task.trust.mechanism else "leave --mechanism out")
            )
        if task.unequal is None:
            mechanism = calibrated(kind, task.budget, release)
        else:
            from mu2mpi.federation.unequal_machines import plan_machines

            plan = plan_machines(
                task.unequal,
                task.budget,
                kind,
                sampling.rounds,
                partial(self.release, task, sampling),
                hides_sums=task.trust.hides_sums,
                is_cumulative=self.estimator.lasts,
            )
            task, mechanism = replace(task, per_machine=plan), plan.main
        theory = self.base_rate(task, sampling, mechanism)
        eta = theory if task.eta_scale is None else task.eta_scale * self.largest_rate(task, sampling)
        if not (math.isfinite(mechanism.sigma) and eta > 0):
            raise InputError(
                f"rho = {task.budget.rho:g} and diameter = {task.diameter:g} leave the range of "
                "floating-point numbers"
            )
        constants = RunConstants(
            task=task,
            estimator=self.estimator,
            query=self.query,
            sampling=sampling,
            mechanism=mechanism,
            S=self.increment_bound(task),
            eta=eta,
            step_size=partial(self.step_size, eta, sampling.rounds),
            step=self.step,
            state=self.state(task.options),
            has_plain_step=self.has_plain_step(task.options),
            mean_from=self.mean_from(sampling.rounds, task.options),
            loss_bound=self.loss_bound(task, sampling, mechanism, eta == theory),
        )
        task.trust.check(constants)
        return constants


def check_batch(batch: int, most: int, whose: str) -> None:
    """Raise InputError if a round would draw more samples than there are."""
    if batch > most:
        raise InputError(
            f"batch = {batch} is more than the {most} samples of {whose}; give at most --batch {most}"
        )
