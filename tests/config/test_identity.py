"""Settings in which experiments differ, and those that change no message."""

from mu2mpi.config.experiment import Experiment, first_different_setting, message_settings


def test_masks_change_nothing_that_is_summed():
    plain, all_of_them = Experiment(server="aggregated"), Experiment(server="aggregated", masks="all")
    assert message_settings(plain) == message_settings(all_of_them)
    assert first_different_setting(plain, all_of_them) is not None
    assert message_settings(plain) != message_settings(Experiment(server="aggregated", colluders=2))
