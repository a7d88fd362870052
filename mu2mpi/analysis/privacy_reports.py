"""Claims of privacy: rho, epsilon and delta from each other, and the claims of results computed again."""

import math
import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial, reduce
from pathlib import Path
from typing import Any

import numpy as np

from mu2mpi.analysis.description import KEY_GONE, TEST_SHARE, by_epsilon, in_numbers, lists_tests
from mu2mpi.analysis.setting_labels import number_text, rounded_down, rounded_up
from mu2mpi.config.experiment import Experiment, sent, simulated
from mu2mpi.core.errors import InputError
from mu2mpi.core.options import LEAST
from mu2mpi.core.text import as_bullets, as_paragraph, as_text
from mu2mpi.privacy.accounting import gaussian_dp
from mu2mpi.privacy.accounting.group_privacy import Held, of_person
from mu2mpi.privacy.accounting.guarantee import Guarantee
from mu2mpi.privacy.mechanisms.mechanism import Mechanism, agree
from mu2mpi.privacy.statement import ADJACENCY, LARGE_EPSILON, UNIT, size_concerns
from mu2mpi.results.reader import read_result
from mu2mpi.results.result import Result
from mu2mpi.results.result_files import list_files, names_of, shown

DELTA = float(Experiment.model_fields["delta"].default)
MAX_SAMPLES = 2**31  # Of a machine, with which integers of 64 bits can be computed
NOT_COVERED = (
    "The guarantee does not cover /diagnostics and the times of a file: `mu2mpi publish` writes one without."
)


def convert(given: Mapping[str, float]) -> str:
    """Say what two of rho, epsilon and delta make the third, with epsilon for other deltas, and n samples."""
    samples = int(given["samples"]) if "samples" in given else None
    if samples is not None and not 1 <= samples < 2**63:
        raise InputError(f"samples = {samples} should be at least 1, and less than 2^63")
    # One by one, since an experiment has either rho or epsilon.
    names = [name for name in ("rho", "epsilon", "delta") if name in given]
    numbers = {name: float(getattr(Experiment.make({name: given[name]}), name)) for name in names}
    if len(numbers) == 3 or not numbers.keys() & {"rho", "epsilon"}:
        raise InputError("give --rho, --epsilon, or two of --rho, --epsilon and --delta, to get the third")
    if math.inf in (numbers.get("rho"), numbers.get("epsilon")):
        return "This is a run without noise: there is no privacy guarantee at all."
    rho, epsilon, delta = numbers.get("rho"), numbers.get("epsilon"), numbers.get("delta", DELTA)
    stated, exactly = "" if epsilon is None else number_text(epsilon), "exactly"
    if rho is None:
        rho, epsilon = Experiment.make({"epsilon": epsilon, "delta": delta}).rho, epsilon or 0.0
        exactly = "the largest rho with a 512th of both left to the draws of its noise"
        found, lemma = str(delta), f"rho would be {rounded_down(gaussian_dp.rho_paper(epsilon, delta))}"
    elif epsilon is None:
        epsilon = gaussian_dp.epsilon_exact(rho, delta)
        stated, found = rounded_up(epsilon), str(delta)
        lemma = f"epsilon would be {rounded_up(gaussian_dp.epsilon_paper(rho, delta))}"
    else:
        delta = gaussian_dp.gaussian_delta(epsilon, rho)
        found, lemma = (
            rounded_up(delta),
            f"delta would be {rounded_up(gaussian_dp.delta_paper(rho, epsilon))}",
        )
    words = (
        f"rho = {number_text(rho)} is (epsilon, delta)-DP with epsilon = {stated} and delta = {found}, "
        f"{exactly}. By the paper's lemma {lemma}."
    )
    deltas = sorted({*(float(f"1e-{k}") for k in range(3, 13)), numbers.get("delta", 1e-3)}, reverse=True)
    lines = ((d, gaussian_dp.epsilon_exact(rho, d), gaussian_dp.epsilon_paper(rho, d)) for d in deltas)
    rows = [list(map(rounded_up, line)) for line in lines]
    meaning = (
        f"Neighbours differ in one sample of one machine, which is replaced ({ADJACENCY}). For every order "
        f"a > 1 their Renyi divergence is at most a rho^2/2 = {rounded_up(rho * rho / 2)} a."
    )
    remarks = [concern.full for concern in size_concerns(epsilon, delta, samples)]
    if samples is None:
        remarks.append("delta has to be far below 1/n for n samples; --samples N compares.")
    table = as_text(["delta", "epsilon, exactly", "by the paper's lemma"], [rows])
    return "\n\n".join([as_paragraph(words), table, as_paragraph(meaning), as_bullets(remarks)]).rstrip()


@dataclass(frozen=True)
class Person:
    """How many samples at each of how many machines, at most; None for all samples of a machine."""

    samples: int | None = 1
    machines: int = 1


def check_ledgers(paths: Iterable[Path], person: Person | None = None) -> tuple[str, list[str]]:
    """Return a table of what results claim, for a person on request, and a line for each false claim."""
    results = [read_result(path) for path in shown(list_files(paths), "reading")]
    rows, problems, learn, sound = [], [], [], []
    remarks: dict[str, list[object]] = {}
    for result in results:
        path, privacy, accounts = result.path, result.privacy, result.accounts
        if not (found := contradictions(result)):
            sound.append(result)
        problems += [f"{path}: {problem}" for problem in found]
        server = privacy.server.capitalize()
        learn.append(f"{server} server: {privacy.who} learns at most this about {UNIT} ({ADJACENCY}).")
        if accounts is not None:
            most = accounts.names[by_epsilon(accounts)[0]]
            about = "" if len(results) == 1 else f" of {path}"
            learn.append(
                f"Machines{about} differ; about none is more told than about samples of machine {most}."
            )
        claim = privacy.rho, privacy.epsilon_exact, privacy.epsilon, privacy.mechanism.name
        rho, *epsilons = in_numbers(*claim)
        holds = "MISMATCH" if found else "agrees"
        rows.append([str(path), privacy.server, rho, rounded_up(privacy.delta), *epsilons, holds])
        texts = [concern.full for concern in privacy.concerns(accounts)]
        texts += [TEST_SHARE] * lists_tests(result) + [KEY_GONE] * privacy.has_lost_key
        texts += [NOT_COVERED] * (result.diagnostics is not None or bool(result.timing))
        for text in texts:
            remarks.setdefault(text, []).append(path)
    header = ["file", "server", "rho", "delta", "epsilon, exactly", "by the paper's lemma", "computed again"]
    learn.append(
        "Claims were computed again from the clipping norm, the noise and the rounds that a file states, and "
        "compared with its experiment and history."
    )
    said = [] if problems else together(results)
    sentences = [*dict.fromkeys(learn), *(f"Together: {sentence}" for sentence in said)]
    bullets = [
        text if len(about) == len(results) else f"{names_of(about, joint=', ')}: {text}"
        for text, about in remarks.items()
    ]
    parts = [as_text(header, [rows]), *map(as_paragraph, sentences)]
    parts += [describe_person(sound, person) if person and sound else "", as_bullets(bullets)]
    return "\n\n".join(filter(None, parts)), problems


def contradictions(result: Result) -> list[str]:
    """Say what a file claims of its privacy that does not follow from what it holds; empty if all does."""
    privacy, experiment, mechanism = result.privacy, result.experiment, result.privacy.mechanism
    if found := [*privacy.out_of_range(), *_machines(result)]:
        return found
    # By the noise that is stated, and not by the rho.
    spent: Callable[[int], float] = partial(Mechanism.rho_spent, mechanism)
    rounds, found, theirs = experiment.rounds, [], dict[str, Any]()
    try:
        if result.accounts is not None:
            constants = result.constants
            members: Any = constants.task.per_machine
            rounds, spent = constants.mechanism.rounds, constants.rho_spent
            used = round(constants.sum_over_machines(constants.rounds, constants.sampling.used))
            theirs = asdict(members.main) | {"S": constants.S}
            differences = result.accounts.differences(members.accounts(privacy.delta))
            found = [f"in /privacy/machines {text}" for text in differences]
        else:
            task, method, used = result.task, experiment.chosen_method, mechanism.samples_used
            asked = method.release(task, method.sampling(task, rounds))
            if mechanism.accounts_for(asked):
                theirs = {name: getattr(asked, name) for name in (*mechanism.sizes(asked), "touched")}
                theirs |= mechanism.own(asked) | {"S": method.increment_bound(task)}
            else:
                unknown = f"how private mechanism = {mechanism.name} makes method = {method.name}"
                found.append(f"it is not known {unknown}")
        if theirs and (counted := int(result.history.samples[-1:].sum())) != used:
            found.append(f"{counted:,} samples were used by /history, and {used:,} by /privacy")
    except InputError as error:
        found.append(f"there is no run of its experiment: {error}")
    theirs |= {
        "server": experiment.server,
        "mechanism": experiment.chosen_mechanism,
        "delta": experiment.delta,
        "noise": simulated(experiment),
        "noise_recomputable": experiment.seed is not None,
    }
    # With budgets, what each machine may spend is in its row.
    if experiment.budgets is None and privacy.rho is not None and experiment.epsilon is None:
        theirs["rho"] = experiment.rho
    elif experiment.budgets is None and not privacy.epsilon_exact <= experiment.promised_epsilon:
        theirs["epsilon_exact"] = f"at most {experiment.promised_epsilon}"
    stated = privacy.attributes()
    found += [
        f"{name} is {stated[name]} in /privacy and {value} in the experiment"
        for name, value in theirs.items()
        if name in stated and stated[name] != value
        if isinstance(value, str) or not agree(stated[name], value)
    ]
    # How long a run is decides how long it takes to compute with.
    if mechanism.rounds == rounds:
        found = [*privacy.mismatches(), *found, *_with_history(result, spent)]
    return found


def _machines(result: Result) -> list[str]:
    """Say why nothing can be computed with what is stated of single machines; empty if all can be."""
    experiment, accounts = result.experiment, result.accounts
    if experiment.machines_differ != (accounts is not None):
        there = "lacks" if accounts is None else "has"
        return [f"the file {there} /privacy/machines, which goes with machines that differ by its experiment"]
    if accounts is None:
        return []
    if result.history.round[-1:].tolist() != [experiment.rounds]:
        return [_no_end(experiment.rounds)]
    if (count := len(accounts.samples)) != experiment.machines:
        return [f"{count} machines are in /privacy/machines, and {experiment.machines} in all"]
    if accounts.present is not None and accounts.present.shape != (experiment.rounds, experiment.machines):
        return [f"present in /privacy/machines has the shape {accounts.present.shape}"]
    ranges = {"samples": (0, MAX_SAMPLES - 1), "rho_allowed": (LEAST, math.inf)}
    return [
        f"{name} of machine {accounts.names[np.argmin(good)]} is out of range"
        for name, (least, most) in ranges.items()
        if not (good := (getattr(accounts, name) >= least) & (getattr(accounts, name) <= most)).all()
    ]


def _with_history(result: Result, spent: Callable[[int], float]) -> list[str]:
    """Return the first round by which less rho is said to be spent than was, or more."""
    history, rounds = result.history, result.experiment.rounds
    t = history.round
    if not (t.size and t[0] > 0 and t[-1] == rounds and np.all(np.diff(t) > 0)):
        return [_no_end(rounds)]
    for t, stated in zip(history.round.tolist(), history.rho_spent.tolist(), strict=True):
        rho = spent(t)
        if not (agree(stated, rho) or (math.isnan(stated) and math.isnan(rho))):
            text = "none" if math.isnan(rho) else f"{rho:.10g}"
            return [f"rho_spent by round {t} is {stated:.10g} in /history, and {text} by the noise"]
    return []


def _no_end(rounds: int | None) -> str:
    return f"the rounds of /history do not end with the {rounds:,} of the experiment"


def guarantee_of(result: Result, person: Person) -> Guarantee:
    """Return what the releases of a run whose claims hold reveal of such a person at most."""
    privacy, T = result.privacy, result.experiment.rounds or 0
    constants = None if result.accounts is None else result.constants
    if constants is None or constants.task.per_machine is None:
        sampling = result.experiment.chosen_method.sampling(result.task, T)
        kinds, rounds = [privacy.mechanism] * privacy.mechanism.machines, [T] * privacy.mechanism.machines
    else:
        sampling, members = constants.sampling, constants.task.per_machine
        there = members.mechanism_index >= 0
        kinds = [members.mechanisms[k] for k in members.mechanism_index[there].tolist()]
        rounds = members.participation.counts[there].tolist()
    # Where chance decides, any of those may be used from which samples are drawn.
    used = [sampling.owned if sampling.chance else sampling.used(n) for n in rounds]
    held = [Held(kind, min(n, person.samples or n)) for kind, n in zip(kinds, used, strict=True)]
    return of_person(
        held,
        person.machines,
        shares_noise=result.experiment.trust.hides_sums,
        is_apart=sampling.most == 1 and not sampling.chance,
        delta=privacy.delta,
        draws=privacy.draws,
    )


def describe_person(results: Sequence[Result], person: Person) -> str:
    """Say what each of some results guarantees such a person, in a table and in words."""
    rows, largest = [], 0.0
    for result in results:
        found, delta = guarantee_of(result, person), result.privacy.delta
        epsilon = found.epsilon(delta)
        largest = max(largest, epsilon)
        rho = "none" if found.rho is None else rounded_up(found.rho)
        rows.append([str(result.path), result.privacy.server, rho, rounded_up(delta), rounded_up(epsilon)])
    samples = {None: "all samples", 1: "one sample"}.get(person.samples, f"up to {person.samples} samples")
    where = "one machine" if person.machines == 1 else f"each of up to {person.machines:,} machines"
    words = (
        f"A person with {samples} at {where}: if all of them were replaced by others at once, what is seen "
        "would tell at most this of it. Which machines take part when, and how many samples each has, counts "
        "as known."
    )
    if any(result.accounts is not None for result in results):
        words += " Where machines differ, it is of a person at those that tell most."
    if math.isinf(largest):
        words += " An infinite epsilon says that none is known."
    elif largest > LARGE_EPSILON:
        words += f" An epsilon beyond {LARGE_EPSILON:g} protects little."
    return f"{as_paragraph(words)}\n\n{as_text(['file', 'server', 'rho', 'delta', 'epsilon'], [rows])}"


def together(found: Iterable[Result]) -> list[str]:
    """Say what all runs on what may be the same people's data reveal to who sees them all.

    Data count as the same unless it is certain that they are not. Copies and repeats of a run count once.
    """
    by_people: dict[object, list[Result]] = {}
    for result in found:
        # A file of the user's may be a copy, a later version, a part or another format of another.
        asked = result.experiment
        people = "files" if asked.source.is_user_data else (asked.data, asked.data_seed)
        by_people.setdefault(people, []).append(result)
    sentences = []
    for group in by_people.values():
        # Models that agree to the bit had the same messages, unless nothing that was sent is in the model, as
        # after a single round.
        models = {bits(run) if run.w.any() else number: run for number, run in enumerate(group)}
        runs, first = list(models.values()), group[0].experiment
        silent = [run.path for run in runs if not run.privacy.is_noisy]
        if len(runs) == 1 or len(silent) == len(runs):
            continue
        which = f"these {len(runs)} runs on {names_of(list(dict.fromkeys(r.experiment.data for r in runs)))}"
        if first.data_seed is not None and not first.source.is_user_data:
            which += f" data with data_seed = {first.data_seed}"
        if len(runs) < len(group):
            which += f" (in {len(group)} files; what was sent once counts once)"
        unbounded = f"nothing bounds what {which} reveal together"
        by_noise: dict[object, list[object]] = {}
        for run in runs:
            if (seed := run.experiment.seed) is not None:
                by_noise.setdefault((seed, sent(run.experiment)), []).append(run.path)
        if silent:
            learns = f"{unbounded}: {names_of(silent)} added no noise."
        elif shared := next((paths for paths in by_noise.values() if len(paths) > 1), None):
            learns = (
                f"{unbounded}: {names_of(shared)} had the same noise, and their models do not show that it "
                "hid the same data: the difference of their messages may hold no noise."
            )
        else:
            total = reduce(operator.add, (run.privacy.guarantee for run in runs))
            deltas, as_one, sums = [run.privacy.delta for run in runs], "", ""
            if total.rho is None:
                # Where not all are Gaussian mechanisms, what they reveal adds up, deltas as well.
                delta, epsilon = sum(deltas), math.fsum(run.privacy.epsilon_exact for run in runs)
                sums = ", the sums of theirs"
            else:
                delta, epsilon = min(deltas), total.epsilon(min(deltas))
                as_one = f"as much as from one with rho = {rounded_up(total.rho)}; exactly, "
            at = f"epsilon = {rounded_up(epsilon)} at delta = {delta:g}"
            learns = f"whoever sees what {which} released learns at most {as_one}{at}{sums}."
        files = " Files of your own count as the same people's data, whatever they are called."
        sentences.append(learns + files * first.source.is_user_data)
    return sentences


def bits(result: Result) -> tuple[bytes, bytes]:
    """Return x_T and w_T for a comparison to the last bit."""
    return result.x.tobytes(), result.w.tobytes()
