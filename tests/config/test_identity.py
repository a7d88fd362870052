"""Settings in which experiments differ, and those that change no message."""

from mu2mpi.config.experiment import Experiment, difference, sent


def test_masks_change_nothing_that_is_summed_and_what_is_shuffled_does():
    plain, all_of_them = Experiment(server="aggregated"), Experiment(server="aggregated", masks="all")
    assert sent(plain) == sent(all_of_them)
    assert difference(plain, all_of_them) is not None
    assert sent(Experiment(server="shuffled")) != sent(Experiment(server="shuffled", shuffle="messages"))
    assert sent(plain) != sent(Experiment(server="aggregated", colluders=2))
