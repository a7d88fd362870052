"""Options of every experiment: names, defaults, limits, and which settings do not go together."""

import math
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationInfo, field_validator

from mu2mpi.core.errors import InputError
from mu2mpi.core.options import registered
from mu2mpi.core.registry import default, find, names
from mu2mpi.data.options import LEAST, MOST, check_file_name
from mu2mpi.data.partition import parse_partition
from mu2mpi.data.source import find_source
from mu2mpi.federation.participation.base import check_participation
from mu2mpi.privacy.accounting.gaussian import SMALLEST_DELTA
from mu2mpi.privacy.accounting.guarantee import affordable_rho

OF_MACHINES = ("participation", "objective", "budgets")  # by which machines differ, or are away


def _choice(kind: str, value: str | None, description: str, key: str = "kind") -> Any:
    """Declare an option that names a registered thing, and if the key is ``forms``, perhaps a value of it."""
    return Field(value, description=description, json_schema_extra={key: kind})


def _size(description: str, value: float | None = None) -> Any:
    """Declare a positive number."""
    return Field(value, ge=LEAST, le=MOST, description=description)


def _whole(description: str, least: int = 1, bits: int = 32) -> Any:
    """Declare a whole number that is not given by default."""
    return Field(None, ge=least, lt=2**bits, description=description)


class ExperimentOptions(BaseModel):
    """The options that every experiment has, whatever its source, method, mechanism and trust mode."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=False)

    data: str = _choice("sources", "digits", "data set, or a file of your own (docs/guides/data.md)", "forms")
    partition: str | None = _choice(
        "partitions",
        None,
        "which machine gets which samples [default: owner where the data name owners, or else iid]",
        "forms",
    )
    loss: str = _choice("losses", "softmax", "loss that is minimised, of a linear model")
    method: str = _choice(
        "methods",
        default("methods"),
        "the paper's method, or one that it is compared with (docs/guides/methods.md)",
    )
    mechanism: str | None = _choice(
        "mechanisms", None, "how noise hides what machines send [default: the method's own]"
    )
    server: str = _choice(
        "servers", "untrusted", "who adds noise, and who is trusted with what (docs/guides/trust.md)"
    )
    machines: int | None = _whole("number of machines M [default: one a rank]")
    participation: str | None = _choice(
        "participation",
        None,
        "participation schedule of the machines (docs/guides/federations.md) [default: all]",
        "forms",
    )
    participation_seed: int | None = _whole(
        "public seed of who takes part when [default: the seed, or 0]", 0, 63
    )
    objective: Literal["machines", "samples"] | None = Field(
        None, description="mean over machines or over samples [default: as the participation schedule says]"
    )
    budgets: str | None = Field(
        None, description="file with the rho or epsilon of each machine or owner [default: all have the same]"
    )
    rounds: int | None = _whole(
        "number of rounds T [default: as many as the samples allow, or the method's theory]"
    )
    epsilon: float | None = Field(
        None, gt=0, description="privacy, instead of rho: the largest rho that is (epsilon, delta)-private"
    )
    delta: float = Field(
        1e-5, ge=SMALLEST_DELTA, lt=1, description="delta of epsilon, given or stated; well below 1 / samples"
    )
    rho: float = Field(
        4.0,
        gt=0,
        validate_default=True,
        description="privacy: every order a has Renyi divergence a*rho^2/2; inf for no noise",
    )
    noise: Literal["aggregate"] | None = Field(
        None,
        description="untrusted server only: aggregate draws one N(0, M sigma^2) a round for all machines, "
        "which protects no single message [default: every machine draws its own]",
    )
    diameter: float = _size("diameter D of the ball K around the starting point 0", 0.1)
    normalize: Literal["none", "unit", "box"] = Field(
        "none",
        description="scale of each sample: none; unit for norm 1, with a bias feature of 0.1; or box, files "
        "only, for features divided by their public bound --feature-bound",
    )
    norm_bound: float | None = _size("scale samples with a longer row of features to this public norm")
    l2: float | None = _size("lambda of a regulariser lambda ||x||^2 / 2, which gets no noise")
    clip_norm: float | None = _size("clip increments to this norm instead of to S = G + 2LD")
    eta_scale: float | None = _size(
        "learning rate eta in units of 1/(4LT), or of the largest that smoothness allows another method "
        "[default: that of the theorem, at most 1]"
    )
    seed: int | None = _whole(
        "makes the run, and its noise, reproducible by all who know it [default: a secret key]", 0, 63
    )
    evaluations: int | None = _whole(
        "rounds, logarithmically spaced, at which loss and accuracy are measured "
        "[default: 12 to 20, and on a share of the test set where all of it takes over a tenth of the time]"
    )

    @field_validator("data", "partition")
    @classmethod
    def _check_text(cls, value: str | None, info: ValidationInfo) -> str | None:
        if value is not None:
            (find_source if info.field_name == "data" else parse_partition)(value)
            check_file_name(value)
        return value

    @field_validator("participation")
    @classmethod
    def _check_participation(cls, value: str | None) -> str | None:
        return value if value is None else check_participation(value)

    @field_validator("loss", "method", "mechanism", "server")
    @classmethod
    def _check_known(cls, value: str | None, info: ValidationInfo) -> str | None:
        extra: Any = cls.model_fields[str(info.field_name)].json_schema_extra
        return registered(extra["kind"], value)

    @property
    def machines_differ(self) -> bool:
        """Whether machines differ, or may be away, by any option."""
        return any(getattr(self, name) is not None for name in OF_MACHINES)

    @field_validator("epsilon", "rho")
    @classmethod
    def _check_range(cls, value: float | None) -> float | None:
        if value is not None and math.isfinite(value) and not LEAST <= value <= MOST:
            raise ValueError(f"should lie in {LEAST:g} .. {MOST:g}, or be inf for no noise")
        return value

    @field_validator("rho")
    @classmethod
    def _derive_rho(cls, value: float, info: ValidationInfo) -> float:
        """Take rho from epsilon where that is given, rounded down: the largest that keeps to it."""
        epsilon, delta = info.data.get("epsilon"), info.data.get("delta")
        return value if epsilon is None or delta is None else affordable_rho(epsilon, delta)

    @property
    def has_feature_bound(self) -> bool:
        """Whether features are to be divided by a bound that belongs to the data."""
        return self.normalize == "box"


def check_together(asked: Any) -> None:
    """Raise InputError for settings that do not go together; the message says what would."""
    asked.source.check(asked, asked.source_options)
    if asked.norm_bound is not None and asked.normalize == "unit":
        raise InputError("norm_bound bounds samples of which normalize = unit makes the norm 1; give one")
    if asked.noise == "aggregate" and asked.trust.hides_sums:
        raise InputError("noise = aggregate is for server = untrusted: others have noise for sums already")
    if asked.trust.mechanism not in (None, asked.chosen_mechanism):
        raise InputError(
            f"mechanism = {asked.chosen_mechanism} is not for server = {asked.server}, which has "
            f"{asked.trust.mechanism} noise; leave --mechanism out, or choose another server"
        )
    if find("mechanisms", asked.chosen_mechanism).belongs and asked.trust.mechanism is None:
        having = [name for name in names("servers") if find("servers", name).mechanism == asked.mechanism]
        raise InputError(
            f"mechanism = {asked.mechanism} belongs to server = {' or '.join(having)}, and the server is "
            f"{asked.server}; leave it out, or choose another server"
        )
    if given := [name for name in OF_MACHINES if getattr(asked, name) is not None]:
        _check_machines(asked, given[0])
    elif asked.participation_seed is not None:
        raise InputError("participation_seed decides which machines are away; give it with --participation")


def _check_machines(asked: Any, name: str) -> None:
    """Refuse what machines that differ, by one of the options, cannot have."""
    what = f"{name} = {getattr(asked, name)}"
    method, kind = asked.chosen_method, find("mechanisms", asked.chosen_mechanism)
    preset: Any = asked.preset
    if not asked.trust.takes_absence:
        raise InputError(
            f"{what}: server = {asked.server} is for machines that are alike and all there, since noise of "
            "each is a part of that which hides the others; leave it out, or choose another server"
        )
    if not method.takes_absence:
        raise InputError(
            f"{what}: method = {method.name} does not say what becomes of machines that are away or "
            "differ; choose another method (docs/guides/federations.md), or leave it out"
        )
    if asked.noise == "aggregate":
        raise InputError(f"{what} and noise = aggregate: one draw for all is for machines that are the same")
    if preset is not None and not method.preset_knows_absence:
        raise InputError(
            f"{what} and preset = {preset}: the steps of method = {method.name} would be for machines that "
            "are all there; take method = mu2-sgd, or give --clip-norm, --diameter and --eta-scale"
        )
    if asked.budgets is not None and (kind.spends != "rho" or not kind.shows_messages):
        raise InputError(
            f"{what}: mechanism = {kind.name} has one account for all machines; leave budgets out, or choose "
            "a method with gaussian or correlated noise"
        )
