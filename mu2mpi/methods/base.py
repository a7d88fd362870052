"""What a method is to the rest of the package: its options, samples, messages, noise, steps and output.

Method modules are imported to list their options, so what is slow to import waits until a run needs it.
"""

import math
from abc import ABC
from dataclasses import fields, replace
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

from pydantic import Field, field_validator

from mu2mpi.core.errors import InputError
from mu2mpi.core.options import Options, registered
from mu2mpi.core.registry import find
from mu2mpi.data.facts import PublicFacts
from mu2mpi.federation.estimators import Estimator, Query
from mu2mpi.federation.schedule import Schedule, Setting, Sizes, Task
from mu2mpi.methods.presets.practical import Choices, PracticalPreset, rounded
from mu2mpi.privacy.mechanisms.base import Mechanism, calibrated
from mu2mpi.privacy.release import Release

if TYPE_CHECKING:
    from mu2mpi.federation.iterates import Iterates


class PresetOptions(Options):
    """Preset of an experiment."""

    preset: str | None = Field(
        None,
        description="settings chosen from public facts where none are given [default: those of theory]",
        json_schema_extra={"kind": "presets"},
    )

    @field_validator("preset")
    @classmethod
    def _check_preset(cls, value: str | None) -> str | None:
        return registered("presets", value)


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
    estimator: Estimator  # what machines send
    query: Query  # where they take gradients
    mechanism: ClassVar[str] = "gaussian"  # what hides what they send, unless the user names another
    takes_mean: ClassVar[bool] = False  # whether the output is the mean of all query points, or the last
    is_default: ClassVar[bool] = False  # whether who names none gets it
    is_switched: ClassVar[bool] = False  # whether mu2-sgd's switches of estimator and query make it
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
        eta_scale = rounded(self.practical_scale(asked, asked.options, facts, chosen))
        return {"clip_norm": chosen.clip_norm, "diameter": chosen.diameter, "eta_scale": eta_scale}

    def widening(self, asked: Any) -> float:
        """Return how many times wider than those of others the ball of the practical mode is."""
        return 1.0

    def practical_scale(self, asked: Any, options: Any, facts: PublicFacts, chosen: Choices) -> float:
        """Return the learning rate of the practical mode, in units of `largest_rate`."""
        raise NotImplementedError

    def mean_from(self, rounds: int, options: Any) -> int | None:
        """Return the first round whose query point counts in the output, their mean; None for the last."""
        if (tail := getattr(options, "tail", None)) is not None:
            return rounds - math.ceil(float(tail) * rounds) + 1
        return 1 if self.takes_mean else None

    def sizes(self, task: Task, rounds: int | None) -> Sizes:
        """Return how long a run is, by default a fresh sample a round; InputError if there are too few."""
        from mu2mpi.federation.sampling import Fresh

        if task.cohort is None:
            rounds = rounds or task.samples
            return Sizes(rounds, Fresh(rounds))
        rounds = rounds or task.cohort.longest
        if task.most is not None:
            task.cohort.check_samples(rounds)
        most = int(task.cohort.samples.max())
        return Sizes(rounds, Fresh(task.cohort.attendance(rounds).max_count), most=most)

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

    def release(self, task: Task, sizes: Sizes, present: int | None = None) -> Release:
        """Return what is to be hidden, of a machine that takes part in so many rounds, or in all."""
        sampling, lasts = sizes.sampling, self.estimator.lasts
        N = sizes.rounds if present is None else present
        # Sums are released, and noise that belongs together, also while a machine is away.
        stays = lasts or find("mechanisms", task.mechanism).stays
        T = sizes.rounds if task.trust.hides_sums and stays else N
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

    def noise_rate(self, task: Task, sizes: Sizes, mechanism: Mechanism) -> float:
        """Return rho D N / (2 C T sqrt(d)) of Theorems 5.2 and 6.2; by its noise where machines differ."""
        T, D, C = sizes.rounds, task.diameter, mechanism.clip_norm
        if task.members is None:
            return task.budget.rho * D * task.shared / (2 * C * T * math.sqrt(task.d)) / mechanism.heaping
        noise = task.members.noise
        return D / (noise * math.sqrt(task.d * T)) if noise else math.inf

    def largest_rate(self, task: Task, sizes: Sizes) -> float:
        """Return the learning rate that no noise would make smaller."""
        L = task.smoothness
        return 1 / (4 * L * sizes.rounds) if self.query.averages else 1 / L

    def base_rate(self, task: Task, sizes: Sizes, mechanism: Mechanism) -> float:
        """Return the learning rate of the method's theory.

        For gradients at averages D / sqrt(V sum of t^2) (Cutkosky, 2019), and at iterates 1 / (1 / largest +
        sqrt(V T) / D) (Dekel et al., 2012), where V bounds the squared error of an average gradient: see
        docs/background/methods.md.
        """
        T, D, largest = sizes.rounds, task.diameter, self.largest_rate(task, sizes)
        error = self.error(task, sizes, mechanism)
        if self.query.averages:
            return min(D / (error * math.sqrt(T * (T + 1) * (2 * T + 1) / 6)), largest)
        return 1 / (1 / largest + error * math.sqrt(T) / D)

    def error(self, task: Task, sizes: Sizes, mechanism: Mechanism) -> float:
        """Return the root of what the squared error of an average gradient is at most in expectation."""
        size = sizes.sampling.drawn(sizes.rounds) / sizes.rounds
        sigma, shared = task.noise_of(mechanism)
        noise = math.sqrt(task.d) * sigma / (shared * size)
        return math.hypot(self.clip_norm(task) / math.sqrt(task.effective * size), noise)

    def rate(self, eta: float, rounds: int, t: int) -> float:
        """Return the factor of the averaged message of round t: eta alpha_t, or if sums are sent, eta."""
        return eta if self.estimator.lasts else eta * self.query.importance(t)

    def loss_bound(self, task: Task, sizes: Sizes, mechanism: Mechanism, is_own_rate: bool) -> float:
        """Return what the expected excess loss is at most, in nats; NaN if nothing is known."""
        return math.nan

    def iterates(self, schedule: Schedule, options: Any) -> "Iterates":
        """Return where the server begins, and how it moves; `options` are the method's own."""
        from mu2mpi.federation.iterates import Iterates

        return Iterates(schedule)

    def schedule(self, task: Task, sizes: Sizes) -> Schedule:
        """Return the constants of a run; or InputError if no noise, grid or finite numbers can be found."""
        from mu2mpi.privacy.noise.stream import check_numbers

        release = self.release(task, sizes)
        check_numbers(task.d, task.machines, sizes.rounds)
        kind: type[Mechanism] = find("mechanisms", task.mechanism)
        if not kind.accounts_for(release):
            own = f"give another server than {task.server}, whose noise that is, or another method"
            raise InputError(
                f"it is not known how private mechanism = {kind.name} makes what method = {self.name} sends; "
                + (own if task.trust.mechanism else "leave --mechanism out")
            )
        if task.cohort is None:
            mechanism = calibrated(kind, task.budget, release)
        else:
            from mu2mpi.federation.cohort import members_of

            sent = partial(self.release, task, sizes)
            members = members_of(task, sizes.rounds, kind, sent, self.estimator.lasts)
            task, mechanism = replace(task, members=members), members.main
        theory = self.base_rate(task, sizes, mechanism)
        eta = theory if task.eta_scale is None else task.eta_scale * self.largest_rate(task, sizes)
        if not (math.isfinite(mechanism.sigma) and eta > 0):
            raise InputError(
                f"rho = {task.budget.rho:g} and diameter = {task.diameter:g} leave the range of "
                "floating-point numbers"
            )
        schedule = Schedule(
            **{field.name: getattr(task, field.name) for field in fields(Setting)},
            estimator=self.estimator,
            query=self.query,
            sampling=sizes.sampling,
            mechanism=mechanism,
            rounds=sizes.rounds,
            radius=task.diameter / 2,
            S=self.increment_bound(task),
            eta=eta,
            rate=partial(self.rate, eta, sizes.rounds),
            mean_from=self.mean_from(sizes.rounds, task.options),
            make_iterates=partial(self.iterates, options=task.options),
            loss_bound=self.loss_bound(task, sizes, mechanism, eta == theory),
            members=task.members,
        )
        schedule.trust.check(schedule)
        return schedule


def check_batch(batch: int, most: int, whose: str) -> None:
    """Raise InputError if a round would draw more samples than there are."""
    if batch > most:
        raise InputError(
            f"batch = {batch} is more than the {most} samples of {whose}; give at most --batch {most}"
        )
