"""The attack on all transfers of a run passes faultless code, and refutes what leaves a rank in the clear."""

import math

import numpy as np
import pytest

from mu2mpi.audit.transfers import check_transfers
from mu2mpi.config.experiment import Experiment
from mu2mpi.execution import simulation
from mu2mpi.execution.keys import Keys
from mu2mpi.federation import collection
from mu2mpi.federation.servers.trusted import TrustedServer

RISK = 1e-6


def found(server):
    return check_transfers(Experiment(server=server, machines=3, rounds=8), RISK)


@pytest.mark.parametrize("server", ["untrusted", "aggregated", "trusted", "shuffled"])
def test_faultless_transfers_pass(server):
    for _ in range(5):
        check = found(server)
        assert check.refutations == check.alarms == ()


def unmasked_checkpoint(monkeypatch):
    monkeypatch.setattr(collection, "add_rank_masks", lambda *arguments: None)


def masked_sum_alone(monkeypatch):
    gather = simulation.gather_counts
    monkeypatch.setattr(simulation, "gather_counts", lambda *a: gather(*a[:-1], None))


def mask_of_low_bits(monkeypatch):
    def flawed(flat, *arguments):
        flat += np.random.default_rng(0).integers(0, 2**32, len(flat))

    monkeypatch.setattr(collection, "add_rank_masks", flawed)


def whole_sum_for_rank_0(monkeypatch):
    monkeypatch.setattr(simulation, "scatter_sum", lambda *arguments: None)


def diagnostics_for_all(monkeypatch):
    monkeypatch.setattr(simulation, "share_result", lambda result, communicator: communicator.share(result))


def other_noise_after_resuming(monkeypatch):
    draw = Keys.draw.__func__
    monkeypatch.setattr(Keys, "draw", classmethod(lambda cls, e, c, root=None, context="": draw(cls, e, c)))


def noise_key_for_all(monkeypatch):
    monkeypatch.setattr(TrustedServer, "gives_key", classmethod(lambda cls, options: True))


def norms_for_all(monkeypatch):
    take_rounds = simulation.Simulation._take_rounds

    def flawed(self, *arguments):
        take_rounds(self, *arguments)
        self.communicator.allgather(math.sqrt(self.machines.largest_squared_norm))

    monkeypatch.setattr(simulation.Simulation, "_take_rounds", flawed)


@pytest.mark.parametrize(
    ("server", "break_it"),
    [
        *((server, unmasked_checkpoint) for server in ("untrusted", "aggregated")),
        ("untrusted", masked_sum_alone),
        ("untrusted", mask_of_low_bits),
        *((server, whole_sum_for_rank_0) for server in ("untrusted", "aggregated")),
        *((server, diagnostics_for_all) for server in ("untrusted", "trusted", "shuffled")),
        *((server, other_noise_after_resuming) for server in ("untrusted", "aggregated", "trusted")),
        ("trusted", noise_key_for_all),
        ("trusted", norms_for_all),
    ],
)
def test_transfers_in_the_clear_are_refuted(monkeypatch, server, break_it):
    break_it(monkeypatch)
    assert found(server).refutations
