"""Practical preset: settings beyond the theorems for accurate models (docs/guides/practical.md)."""

import math
from typing import Any, NamedTuple

from mu2mpi.core.registry import lookup, register
from mu2mpi.data.source import PublicFacts
from mu2mpi.federation.trust_mode import experiment_noise_reduction
from mu2mpi.methods.presets.preset import Preset

STEP = 1.8  # step size of multi-pass methods, in units of 1/L; gradient descent is stable below 2


class PresetConstants(NamedTuple):
    """Settings of the practical preset that all methods share, and constants of the loss that they imply."""

    clip_norm: float  # clipping norm that the preset chooses
    diameter: float  # diameter that the preset chooses
    effective_clip_norm: float  # clipping norm in use: that of the user, if any
    weight_noise_std: float  # noise std that a coordinate of the model may accumulate
    G: float  # bound on gradient norms in the ball
    L: float  # smoothness in the ball, regulariser included
    unit_margin_smoothness: float  # smoothness on models whose margins are at most 1, regulariser included

    def noise_limited_step_sum(self, experiment: Any) -> float:
        """Return the sum of step sizes that accumulates `weight_noise_std`, at 2 C / (rho N) per unit."""
        sensitivity = 2 * min(self.effective_clip_norm, self.G)
        return float(
            self.weight_noise_std * experiment.rho * experiment_noise_reduction(experiment) / sensitivity
        )


@register
class PracticalPreset(Preset):
    """Settings tuned on public data, by `Loss.practical_defaults` and `Method.choose_settings`."""

    name = "practical"
    summary = (
        "for good models: the method (dp-gd), normalize, clip-norm, diameter and eta-scale, and rounds, "
        "batch, tail, momentum and mechanism of methods with a choice"
    )
    is_default = True
    method = "dp-gd"

    def settings(self, method: Any, experiment: Any, facts: PublicFacts | None) -> dict[str, Any]:
        """Return the settings of a method, and `normalize`: to norm 1 unless columns or norms have bounds."""
        has_bounds = experiment.schema is not None or experiment.norm_bound is not None
        chosen = {} if facts is None else method.choose_settings(self, experiment, facts)
        return {**method.preset_settings, **chosen, "normalize": "none" if has_bounds else "unit"}

    def clip_norm(self, loss_function: Any, sample_norm: float, gradient_bound: float) -> float:
        """Return the clipping norm for a bound on ||z||, and on gradients of models with margins up to 1."""
        clip = loss_function.practical_defaults.clip_norm
        return float(gradient_bound / 2 if clip is None else clip * sample_norm)

    def practical_constants(self, experiment: Any, facts: PublicFacts, scale: float = 1.0) -> PresetConstants:
        """Return the settings that all methods share, in a ball `scale` times the default one."""
        # Listing options must not import numpy.
        from mu2mpi.losses.model.scaling import Scaling

        loss_function = lookup("losses", experiment.loss)
        defaults, l2 = loss_function.practical_defaults, experiment.l2 or 0.0
        max_squared_norm = Scaling(experiment.scaling == "unit", experiment.norm_bound).max_squared_norm(
            facts.max_squared_norm
        )
        sample_norm = math.sqrt(max_squared_norm)
        diameter = round_to_four_digits(scale * 2 * defaults.max_margin / sample_norm)
        radius = (experiment.diameter if "diameter" in experiment.explicit_settings else diameter) / 2
        unit_margin = loss_function.constants(max_squared_norm, 1 / sample_norm, facts.classes)
        G, L, _ = loss_function.constants(max_squared_norm, radius, facts.classes)
        clip_norm = round_to_four_digits(self.clip_norm(loss_function, sample_norm, unit_margin.G))
        return PresetConstants(
            clip_norm=clip_norm,
            diameter=diameter,
            effective_clip_norm=experiment.clip_norm or clip_norm,
            weight_noise_std=defaults.noise_std / sample_norm,
            G=G,
            L=L + l2,
            unit_margin_smoothness=unit_margin.L + l2,
        )

    def multi_pass_settings(
        self,
        experiment: Any,
        facts: PublicFacts,
        *,
        noise_divisor: float,
        rounds_range: tuple[int, int],
        tail: float,
        acceleration: float = 1.0,
    ) -> dict[str, Any]:
        """Return the settings of methods that pass over the data many times, with step sizes up to 1.8 / L.

        The gradient averaged over all rounds has noise of std 2 C / (rho noise_divisor). `tail` is the share
        of the rounds that the output averages, and momentum multiplies all steps by `acceleration`.
        """
        constants, (min_rounds, max_rounds) = self.practical_constants(experiment, facts), rounds_range
        step = STEP / constants.unit_margin_smoothness
        sensitivity = 2 * min(constants.effective_clip_norm, constants.G)
        path = constants.weight_noise_std * experiment.rho * noise_divisor / sensitivity / acceleration
        rounds = math.ceil(min(max(path / step, min_rounds), max_rounds))
        return {
            "clip_norm": constants.clip_norm,
            "diameter": constants.diameter,
            "rounds": rounds,
            "tail": tail,
            "eta_scale": round_to_four_digits(constants.L * min(step, path / (experiment.rounds or rounds))),
        }


def max_averaged_eta_scale(experiment: Any, facts: PublicFacts) -> float:
    """Return the largest learning rate at averages, in units of 1 / (4 L T) with L at margins up to 1.

    Beyond it, w follows single samples, or oscillates if samples do not have norm 1 or labels are numbers.
    """
    multiple = facts.effective_machines or experiment.machines or 1
    if experiment.scaling != "unit" or lookup("losses", experiment.loss).label_kind == "numbers":
        multiple = min(multiple, single_pass_rounds(experiment, facts))
    return 16.0 * multiple


def single_pass_rounds(experiment: Any, facts: PublicFacts) -> int:
    """Return the number of rounds of one pass over the data: n by default."""
    return experiment.rounds or facts.samples // (experiment.machines or 1)


def round_to_four_digits(value: float) -> float:
    """Round to four significant digits, which hide differences between processors."""
    return float(f"{value:.4g}")
