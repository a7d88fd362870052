"""Each attack passes faultless code, and refutes what it is there for: one table of faults a module."""

import numpy as np
import pytest
from helpers.faults import (
    attacked,
    changed_noise,
    edited_masks,
    edited_noise,
    few_messages,
    half_of_the_coins,
    masks_in,
    parts_for_all_machines,
    patched,
    scaled_noise,
    silent_from_machine_10_on,
)
from helpers.slow import slow

from mu2mpi.audit.adversary_view import all_attacks
from mu2mpi.audit.attacks import seed_attack as draws_module
from mu2mpi.federation import subsampling
from mu2mpi.privacy.mechanisms.poisson_machines_mechanism import PoissonMachinesMechanism
from mu2mpi.privacy.mechanisms.poisson_mechanism import PoissonMechanism
from mu2mpi.privacy.mechanisms.replacement_exact_mechanism import ReplacementExactMechanism
from mu2mpi.privacy.noise import masks, noise_source as drawing
from mu2mpi.privacy.noise.binomial_sampler import BinomialNoiseSource
from mu2mpi.privacy.noise.masks import Masks
from mu2mpi.privacy.noise.noise_stream import CHUNK_WORDS, add_signed_noise
from mu2mpi.privacy.noise.sampler_error import DITHER_THRESHOLD

CORRELATED = {"method": "anytime-dp-mf"}, {"noise_correlation": 0.5}
DP_SGD = {"method": "dp-sgd", "server": "trusted"}
MINIBATCH = {"method": "noisy-minibatch-sgd"}
TWICE = {**MINIBATCH, "batch": 2}
MACHINES = {"method": "fedavg", "unit": "machine", "local_steps": 2, "server": "trusted"}
MASKED = {"server": "aggregated"}
SERVERS = "untrusted", "trusted", "aggregated", "shuffled"


@pytest.fixture(autouse=True)
def small(monkeypatch):
    few_messages(monkeypatch)
    monkeypatch.setattr(draws_module, "MAX_TESTED_RUNS", 400)


FAULTLESS = [
    *(("noise", {"server": server}) for server in SERVERS),
    *(("noise", {"server": server, **of}) for server in SERVERS[:2] for of in CORRELATED),
    *slow(*(("noise", {"server": "aggregated", **of}) for of in CORRELATED)),
    *(("mask", {**MASKED, "machines": M, "colluders": c}) for M, c in ((3, 1), (5, 2))),
    *slow(*(("mask", {**MASKED, "machines": M, "colluders": c}) for M, c in ((3, 0), (10, 1)))),
    *slow(("mask", {**MASKED, "masks": "all"})),
    ("seed", MACHINES),
    ("multiplier", MACHINES),
    *slow(*((name, {**MACHINES, "server": "aggregated"}) for name in ("seed", "multiplier"))),
    *slow(*((name, of) for name in ("seed", "multiplier") for of in (
        DP_SGD,
        MINIBATCH,
        TWICE,
        *({**of, "server": "aggregated"} for of in (DP_SGD, MINIBATCH, TWICE)),
        {**TWICE, "server": "trusted"},
        {**DP_SGD, "mechanism": "gaussian"},
        {**DP_SGD, "participation": "bernoulli:0.5", "objective": "samples"},
        {**MINIBATCH, "participation": "uniform:2"},
    ))),
]  # fmt: skip


@pytest.mark.parametrize(("module", "settings"), FAULTLESS)
def test_faultless_code_passes(module, settings):
    found = attacked(module, **({"runs": 120} if module == "multiplier" else {}), **settings)
    assert (found.refutations, found.alarms) == ((), ())


# Noise.


def whole_chunks(edit):
    """Edit noise in pairs of normals, shape (chunks, 2, 128)."""
    return edited_noise(lambda noise: edit(noise.reshape(-1, 2, 128)).ravel())


def pairs_of_equal_low_bits(pairs):
    pairs[:, 1] += pairs[:, 0] % 16 - pairs[:, 1] % 16
    return pairs


def neighbours_of_equal_low_bits(noise):
    noise[1::2] = (noise[1::2] & ~15) + (noise[::2] & 15)
    return noise


def without(*place):
    """Leave out the noise of a part of the coordinates."""

    def edit(noise):
        noise[slice(*place)] = 0
        return noise

    return edited_noise(edit)


def multiples_of(step):
    return edited_noise(lambda noise: (noise + step // 2) // step * step)


def coins_in(change):
    """Throw the coins of the round that `change` makes of t."""
    make = lambda call: lambda self, noised, message, t: call(self, noised, message, change(t))  # noqa: E731
    return patched(BinomialNoiseSource, "__call__", make)


def coins_of_even_sums(monkeypatch):
    call = BinomialNoiseSource.__call__

    def flawed(self, noised, message, t):
        call(self, noised, message, t)
        noised[:] = message + (noised - message) // 2 * 2

    monkeypatch.setattr(BinomialNoiseSource, "__call__", flawed)


NOISE = [
    (without(256, None), {}, "has 0 of its standard deviation in coordinate 256"),
    (without(4000, 4001), {}, "has 0 of its standard deviation in coordinate 4000"),
    (
        changed_noise(lambda i, t, scale: (i, t, min(scale, DITHER_THRESHOLD))),
        {},
        "of its standard deviation in round",
    ),
    (changed_noise(lambda i, t, scale: (i, t % 64, scale)), {}, "were used before"),
    (changed_noise(lambda i, t, scale: (i, t & 0xFFFF, scale)), {}, "were used before"),
    (changed_noise(lambda i, t, scale: (i & 0xFFFF, t, scale)), {}, "were used before"),
    (changed_noise(lambda i, t, scale: (i, t & 0xFFFF, scale)), {"server": "trusted"}, "were used before"),
    (changed_noise(lambda i, t, scale: (i, int(np.float32(t)) % 2**32, scale)), {}, "were used before"),
    (changed_noise(lambda i, t, scale: (0, (i + t) % 2**32, scale)), {}, "were used before"),
    (silent_from_machine_10_on, {}, "has 0 of its standard deviation in round 1 of machine 10"),
    (silent_from_machine_10_on, CORRELATED[0], "has 0 of its standard deviation in"),
    (silent_from_machine_10_on, CORRELATED[1], "has 0 of its standard deviation in"),
    (
        scaled_noise(0, lambda i, t: i >= 10),
        MASKED,
        "has 0 of its standard deviation in round 1 of machine 10",
    ),
    (scaled_noise(0.5, lambda i, t: t > 2**20), {"server": "trusted"}, "of its standard deviation in round"),
    (parts_for_all_machines, MASKED, "has 0.94"),
    (multiples_of(2), {}, "bits 0 to 7 of the noise"),
    (multiples_of(256), {}, "bits 0 to 7 of the noise"),
    (multiples_of(2**16), {}, "bits 8 to 15 of the noise"),
    (edited_noise(lambda noise: noise | 2**17), {}, "bits 16 to 19 of the noise"),
    (edited_noise(neighbours_of_equal_low_bits), {}, "the difference of neighbouring coordinates"),
    (whole_chunks(pairs_of_equal_low_bits), {}, "the difference of the coordinates of a pair"),
    (half_of_the_coins, {"server": "shuffled"}, "has 0.707"),
    (coins_in(lambda t: 1), {"server": "shuffled"}, "were used before"),
    (coins_in(lambda t: t & 0xFFFF), {"server": "shuffled"}, "were used before"),
    (coins_of_even_sums, {"server": "shuffled"}, "bits 0 to 7 of the noise"),
]  # fmt: skip


# Masks. With a server of one machine of three, each group is one machine and knows one mask.


def change_ends(change):
    """Let the ends of edges, with their signs, be what `change` makes of them; None leaves one out."""
    make = lambda touching: lambda *where: filter(None, (change(*end) for end in touching(*where)))  # noqa: E731
    return patched(masks, "signed_edges", make)


def half_of_the_bits(add):
    """Of 64, the lower half is left as it is."""

    def flawed(masked, keys, signs, t):
        for key, sign in zip(keys, signs.view(np.uint64), strict=True):
            mask = np.zeros_like(masked)
            add(mask, key[np.newaxis], np.ones(1, np.int64), t)
            masked += sign * (mask & np.uint64(2**64 - 2**32))

    return flawed


def a_repeated_edge(add):
    """One pair of machines repeats its masks, which those of other pairs hide in what machines send."""
    repeated = []

    def flawed(masked, keys, signs, t):
        for key, sign in zip(keys, signs, strict=True):
            first = repeated or repeated.append(key.tobytes()) or repeated
            add(masked, key[np.newaxis], np.array([sign]), t % 13 if key.tobytes() == first[0] else t)

    return flawed


def first_chunk_alone(own, t, of):
    own[CHUNK_WORDS:] = 0
    return own


def all_but_one_coordinate(own, t, of):
    own[4000] = 0
    return own


def repeated_chunk(own, t, of):
    return np.tile(own[:CHUNK_WORDS], len(own) // CHUNK_WORDS)


def overlapping_chunks(own, t, of):
    own[256:512] = np.roll(own[:256], -8)
    return own


MASKS = [
    (masks_in(lambda t: 1), {}, "1 rounds apart"),
    (masks_in(lambda t: (t + 1) // 2), {}, "1 rounds apart"),
    (masks_in(lambda t: t % 13), {}, "used before"),
    (masks_in(lambda t: t & 0xFFFF), {}, "used before"),
    (masks_in(lambda t: t & 0x7FFFFFFF), {}, "used before"),
    (change_ends(lambda i, j, sign: (i, j, 1 if (i, j) == (0, 2) else sign)), {}, "do not cancel in round 1"),
    (change_ends(lambda *end: end if end != (0, 2, -1) else None), {}, "do not cancel in round 1"),
    (change_ends(lambda *end: end if end[:2] != (0, 2) else None), {}, "0, less those that machines 1"),
    (change_ends(lambda *end: end if end[:2] != (1, 4) else None), {"machines": 5, "colluders": 3},
     "machines 1, less those that machines 0, 2, 3"),
    (patched(masks, "edge_key", lambda _: lambda *of: np.zeros(8, np.uint32)), {"colluders": 0}, "uniform"),
    (patched(Masks, "__bool__", lambda _: lambda self: False), {}, "not uniform"),
    (lambda monkeypatch: None, {"masks": "none"}, "not uniform"),
    (patched(masks, "add_masks", half_of_the_bits), {}, "not uniform"),
    (edited_masks(first_chunk_alone), {}, "used before"),
    (edited_masks(all_but_one_coordinate), {}, "in chunk 15 of real messages"),
    (edited_masks(repeated_chunk), {}, "used before"),
    (edited_masks(overlapping_chunks), {}, "used before"),
    (patched(masks, "add_masks", a_repeated_edge), {}, "used before"),
    (edited_masks(lambda own, t, of: own * (t < 2**24 or of.peers[0] != 0)), {}, "in round 16,777,216"),
]  # fmt: skip


# Draws that can be predicted, or are others than claimed.


def changed_draws(machine_of, round_of):
    """Let each machine draw in each round what another does, or the same does in another."""

    def make(independently, uniformly):
        def changed(draw):
            def flawed(key, machines, rounds, *sizes):
                who, when = map(machine_of, machines.tolist()), map(round_of, rounds.tolist())
                return draw(key, np.array([*who]), np.array([*when]), *sizes)

            return flawed

        return changed(independently), changed(uniformly)

    return both_draws(make)


def both_draws(make):
    def break_it(monkeypatch):
        changed = make(subsampling.sample_poisson_batches, subsampling.sample_replacement_batches)
        for name, draw in zip(("sample_poisson_batches", "sample_replacement_batches"), changed, strict=True):
            monkeypatch.setattr(subsampling, name, draw)

    return break_it


more_than_claimed = both_draws(
    lambda independently, uniformly: (
        lambda *of: independently(*of[:-1], of[-1] // 3 * 4),
        lambda *of: uniformly(*of) % (of[3] - 1),
    )
)

DRAWS = [
    (patched(subsampling, "key_to_uint32", lambda _: lambda key: np.zeros(8, np.uint32)), "more often"),
    (changed_draws(lambda i: i, lambda t: 1), "are not independent"),
    (changed_draws(lambda i: i, lambda t: 2 if t == 4 else t), "are not independent"),
    (changed_draws(lambda i: 0, lambda t: t), "are not independent"),
    (more_than_claimed, "more often than claimed"),
]  # fmt: skip


# Noise multiplier of methods that draw their samples.


def share_of_draws(share):
    """Draw noise that is too small, or too large, under the same claims."""

    def break_it(monkeypatch):
        scaled_noise(share)(monkeypatch)

        def changed(noise, key, machines, numbers, scales, *of):
            add_signed_noise(noise, key, machines, numbers, scales * share, *of)

        monkeypatch.setattr(drawing, "add_signed_noise", changed)

    return break_it


def half_of_the_noise_asked_for(kind):
    make = lambda least: staticmethod(lambda *sizes: least(*sizes) / 2)  # noqa: E731
    return patched(kind, "find_sigma", make)


def half_of_the_noise_in_its_own_account(kind):
    """The mechanism keeps to what is claimed by its own account, which is wrong."""

    def break_it(monkeypatch):
        half_of_the_noise_asked_for(kind)(monkeypatch)
        of = lambda by: staticmethod(lambda C, n, K, T, s, *own, **of: by(C, n, K, T, 2 * s, *own, **of))  # noqa: E731
        patched(kind, "compute_epsilon", of)(monkeypatch)

    return break_it


MULTIPLIER = [
    *((share_of_draws(0.7), of) for of in (DP_SGD, MINIBATCH)),
    *slow(
        *(
            (share_of_draws(0.7), {**of, "server": server})
            for of in (DP_SGD, TWICE)
            for server in SERVERS[1:3]
        )
    ),
    *slow((share_of_draws(0.7), {**DP_SGD, "participation": "bernoulli:0.5", "objective": "samples"})),
    *slow((share_of_draws(0.7), {**MINIBATCH, "participation": "uniform:2"})),
    (share_of_draws(0.7), {**DP_SGD, "mechanism": "gaussian"}),
    (half_of_the_noise_asked_for(PoissonMechanism), DP_SGD),
    (half_of_the_noise_in_its_own_account(PoissonMechanism), DP_SGD),
    (share_of_draws(0.7), MACHINES),
    (half_of_the_noise_asked_for(PoissonMachinesMechanism), MACHINES),
    *slow((share_of_draws(0.7), {**MACHINES, "server": "aggregated"})),
    *slow((half_of_the_noise_in_its_own_account(PoissonMachinesMechanism), MACHINES)),
    (half_of_the_noise_asked_for(ReplacementExactMechanism), MINIBATCH),
]

FAULTS = [
    *(("noise", *fault) for fault in NOISE[::3]),
    *slow(*(("noise", *fault) for k, fault in enumerate(NOISE) if k % 3)),
    *(("mask", fault, {**MASKED, **own}, words) for fault, own, words in MASKS[::3]),
    *slow(*(("mask", fault, {**MASKED, **own}, words) for k, (fault, own, words) in enumerate(MASKS)
            if k % 3)),
    *(("seed", fault, DP_SGD, words) for fault, words in DRAWS),
    *slow(*(("seed", fault, own, words) for own in (MINIBATCH, MACHINES) for fault, words in DRAWS)),
    *(pytest.param("multiplier", *(case.values if hasattr(case, "values") else case), "",
                   marks=getattr(case, "marks", ())) for case in MULTIPLIER),
]  # fmt: skip
"""Attack, what is broken, settings, and what the attack says of it."""


@pytest.mark.parametrize(("module", "break_it", "settings", "words"), FAULTS)
def test_faults_are_refuted(monkeypatch, module, break_it, settings, words):
    break_it(monkeypatch)
    found = attacked(module, **({"runs": 120} if module == "multiplier" else {}), **settings)
    assert any(words in refutation for refutation in found.refutations), found


@pytest.mark.parametrize(
    ("module", "break_it", "settings"),
    [
        ("noise", scaled_noise(1.1), {}),
        ("multiplier", share_of_draws(1.4), DP_SGD),
        *slow(("multiplier", share_of_draws(1.4), MINIBATCH)),
    ],
)
def test_what_hides_more_than_is_said_is_an_alarm(monkeypatch, module, break_it, settings):
    break_it(monkeypatch)
    found = attacked(module, **({"runs": 120} if module == "multiplier" else {}), **settings)
    assert found.refutations == ()
    assert found.alarms


def test_masks_that_hide_enough_without_an_edge_are_not_complained_of(monkeypatch):
    """Of a circle of four, three edges hold all together."""
    edges = masks.mask_edges
    monkeypatch.setattr(masks, "mask_edges", lambda M, *of: edges(M, *of)[1:] if M == 4 else edges(M, *of))
    assert attacked("mask", server="aggregated", machines=4, colluders=0).refutations == ()


def test_every_attack_has_faults():
    broken = {fault.values[0] if hasattr(fault, "values") else fault[0] for fault in FAULTS}
    attacks = {attack.__name__.rpartition(".")[2].removesuffix("_attack") for attack in all_attacks()}
    assert broken == attacks | {"noise"}
