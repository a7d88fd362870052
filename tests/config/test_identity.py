"""Settings in which experiments differ, and those that change no message."""

from mu2mpi.config.experiment import Experiment, first_difference, sent_settings


def test_masks_change_nothing_that_is_summed_and_what_is_shuffled_does():
    plain, all_of_them = Experiment(server="aggregated"), Experiment(server="aggregated", masks="all")
    assert sent_settings(plain) == sent_settings(all_of_them)
    assert first_difference(plain, all_of_them) is not None
    assert sent_settings(Experiment(server="shuffled")) != sent_settings(
        Experiment(server="shuffled", shuffle="messages")
    )
    assert sent_settings(plain) != sent_settings(Experiment(server="aggregated", colluders=2))
