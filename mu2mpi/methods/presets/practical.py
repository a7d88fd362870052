"""Practical preset: settings beyond the theorems for accurate models (docs/guides/practical.md)."""

import math
from typing import Any, NamedTuple

from mu2mpi.core.registry import lookup, register
from mu2mpi.data.source import PublicFacts
from mu2mpi.methods.presets.preset import Preset
from mu2mpi.privacy.released_sums import UNIT_SENSITIVITIES

LARGE_RELATIVE_NOISE = 0.01  # of one average gradient; above it, one pass over the data learns less
STEP_SIZE_TIMES_L = 1.8  # of multi-pass methods, in units of 1 / L; gradient descent is stable below 2


class PresetConstants(NamedTuple):
    """Clipping norm and diameter of the practical preset, and constants of the loss that they imply."""

    experiment: Any
    public_facts: PublicFacts
    machines: int  # M
    single_pass_rounds: int  # rounds of one pass over the data: by default the samples per machine
    noise_reduction: float  # ratio of sigma to the noise std of the averaged message
    clip_norm: float  # clipping norm that the preset chooses
    diameter: float  # diameter that the preset chooses
    effective_clip_norm: float  # clipping norm in use: that of the user, if any
    max_squared_norm: float  # bound on the squared norms of samples, bias included
    model_noise_std: float  # largest noise std of a coordinate of the trained model
    G: float  # bound on gradient norms in the ball
    L: float  # smoothness in the ball, regulariser included
    smoothness_at_unit_margin: float  # smoothness on models whose margins are at most 1, regulariser included

    @property
    def sensitivity(self) -> float:
        """L2 sensitivity of a sum of increments that are clipped to the norm in use."""
        return UNIT_SENSITIVITIES[self.experiment.neighbours] * self.effective_clip_norm

    @property
    def max_eta_scale_at_averages(self) -> float:
        """Largest stable eta_scale of methods that take gradients at averages of the iterates."""
        # Beyond, w follows single samples, or oscillates unless samples have norm 1 and labels are classes.
        multiple = self.public_facts.effective_machines or self.machines
        label_kind = lookup("losses", self.experiment.loss).label_kind
        if self.experiment.sample_scaling != "unit" or label_kind == "numbers":
            multiple = min(multiple, self.single_pass_rounds)
        return 16.0 * multiple

    def noise_limited_step_sum(self, noise_divisor: float | None = None) -> float:
        """Return the sum of step sizes at which noise of std sensitivity / (rho N) reaches `model_noise_std`.

        The noise divisor N is by default `noise_reduction`.
        """
        sensitivity = min(self.sensitivity, UNIT_SENSITIVITIES[self.experiment.neighbours] * self.G)
        N = self.noise_reduction if noise_divisor is None else noise_divisor
        return float(self.model_noise_std * self.experiment.rho * N / sensitivity)

    def settings(self, eta_scale: float, **method_settings: Any) -> dict[str, Any]:
        """Return the preset's settings by option name: clipping norm, diameter, eta_scale and others."""
        ball = {"clip_norm": self.clip_norm, "diameter": self.diameter}
        return {**ball, **method_settings, "eta_scale": round_to_four_digits(eta_scale)}

    def multi_pass_settings(
        self, noise_divisor: float, rounds_range: tuple[int, int], tail: float, momentum_gain: float = 1.0
    ) -> dict[str, Any]:
        """Return the preset's settings of methods with many passes over the data and steps up to 1.8 / L.

        The mean gradient has noise of std sensitivity / (rho noise_divisor); `momentum_gain` scales steps.
        """
        max_step, (min_rounds, max_rounds) = STEP_SIZE_TIMES_L / self.smoothness_at_unit_margin, rounds_range
        path = self.noise_limited_step_sum(noise_divisor) / momentum_gain
        rounds = math.ceil(min(max(path / max_step, min_rounds), max_rounds))
        eta_scale = self.L * min(max_step, path / (self.experiment.rounds or rounds))
        return self.settings(eta_scale, rounds=rounds, tail=tail)


@register
class PracticalPreset(Preset):
    """Practical preset: settings of a method that were tuned on public data, by loss and method."""

    name = "practical"
    summary = (
        "for good models: the method (dp-gd), normalize, clip-norm, diameter and eta-scale, and rounds, "
        "batch, tail and momentum of methods with a choice"
    )
    is_default = True
    default_method = "dp-gd"

    def settings(self, method: Any, experiment: Any, public_facts: PublicFacts | None) -> dict[str, Any]:
        """Return a method's settings, and `normalize`: "unit" unless columns or sample norms have bounds."""
        has_bounds = experiment.schema is not None or experiment.norm_bound is not None
        settings = dict(method.preset_settings)
        if public_facts is not None:
            settings |= method.choose_settings(self._constants(method, experiment, public_facts))
        return {**settings, "normalize": "none" if has_bounds else "unit"}

    def advice(self, method: Any, problem: Any) -> str | None:
        """Return advice to use `default_method` if noise is large and the method does not suit that."""
        # L2 norm of the noise of one average gradient at the whole budget, in units of the clipping norm
        noise_divisor = problem.budget.rho * problem.noise_reduction * problem.samples
        relative_noise = UNIT_SENSITIVITIES[problem.neighbours] * math.sqrt(problem.d) / noise_divisor
        if method.suits_large_noise or relative_noise <= LARGE_RELATIVE_NOISE:
            return None
        return (
            f"With this much noise for so few samples, --method {self.default_method} is usually more "
            f"accurate than --method {method.name} (docs/guides/practical.md)."
        )

    def clip_norm(self, loss_function: Any, sample_norm: float, gradient_bound: float) -> float:
        """Return the preset's clipping norm, given bounds on sample and gradient norms at margins up to 1."""
        unit_clip_norm = loss_function.practical_defaults.clip_norm
        return float(gradient_bound / 2 if unit_clip_norm is None else unit_clip_norm * sample_norm)

    def _constants(self, method: Any, experiment: Any, public_facts: PublicFacts) -> PresetConstants:
        """Return the preset's constants of a method, a loss and public facts."""
        # Listing options must not import numpy.
        from mu2mpi.losses.model.scaling import Scaling

        loss_function = lookup("losses", experiment.loss)
        defaults, l2 = loss_function.practical_defaults, experiment.l2 or 0.0
        scaling = Scaling(experiment.sample_scaling == "unit", experiment.norm_bound)
        max_squared_norm = scaling.max_squared_norm(public_facts.max_squared_norm)
        sample_norm = math.sqrt(max_squared_norm)
        diameter_factor = method.practical_diameter_factor(experiment)
        diameter = round_to_four_digits(diameter_factor * 2 * defaults.max_margin / sample_norm)
        radius = (experiment.diameter if "diameter" in experiment.explicit_settings else diameter) / 2
        unit_margin = loss_function.constants(max_squared_norm, 1 / sample_norm, public_facts.classes)
        G, L, *_ = loss_function.constants(max_squared_norm, radius, public_facts.classes)
        clip_norm = round_to_four_digits(self.clip_norm(loss_function, sample_norm, unit_margin.G))
        trust_mode, machines = experiment.trust_mode, experiment.machines or 1
        noise_shares = trust_mode.noise_shares(experiment.server_options, machines)
        return PresetConstants(
            experiment=experiment,
            public_facts=public_facts,
            machines=machines,
            single_pass_rounds=experiment.rounds or public_facts.samples // machines,
            noise_reduction=trust_mode.noise_reduction(machines, noise_shares),
            clip_norm=clip_norm,
            diameter=diameter,
            effective_clip_norm=experiment.clip_norm or clip_norm,
            max_squared_norm=max_squared_norm,
            model_noise_std=defaults.margin_noise_std / sample_norm,
            G=G,
            L=L + l2,
            smoothness_at_unit_margin=unit_margin.L + l2,
        )


def round_to_four_digits(value: float) -> float:
    """Round a setting to four significant digits, which hide rounding errors of different processors."""
    return float(f"{value:.4g}")
