"""Result files are opened as often as needed, and no more."""

import numpy as np
import pytest

from mu2mpi.config.experiment import Experiment
from mu2mpi.core.errors import InputError
from mu2mpi.core.toml import parse_toml
from mu2mpi.results import opening
from mu2mpi.results.result_files import load_summaries
from mu2mpi.results.writer import write_result


def test_details_are_read_in_one_pass(build_result, tmp_path, monkeypatch):
    write_result(build_result(), tmp_path / "a.h5")
    opened, open_file = [], opening.open_for_reading

    def count(*of, **how):
        opened.append(of)
        return open_file(*of, **how)

    monkeypatch.setattr(opening, "open_for_reading", count)
    (run,), _ = load_summaries([tmp_path], prefetch=("contents", "history"))
    details = run.contents, run.history
    assert len(opened) == 1
    (lazy,), _ = load_summaries([tmp_path])
    assert str(lazy.contents) == str(details[0])
    np.testing.assert_equal(lazy.history.rows(), details[1].rows())
    assert len(opened) == 4  # the summary, and each detail at its first access


def test_experiments_that_differ_in_the_seed_alone_are_parsed_once(monkeypatch):
    texts = [Experiment(data="digits", epsilon=2.0, seed=seed).to_toml() for seed in (0, 7, 10**17)]
    texts += [Experiment(machines=3).to_toml(), 'seed = 5\nserver = "trusted"']
    expected = [Experiment.from_settings(parse_toml(text, "")) for text in texts]
    opening._parse_template.cache_clear()
    parsed = []
    monkeypatch.setattr(opening, "parse_toml", lambda text, *of: parsed.append(text) or parse_toml(text, *of))
    found = [opening._parse_experiment(text, "a.h5") for text in texts]
    assert (found, len(parsed)) == (expected, 3)
    assert [e.settings() for e in found] == [e.settings() for e in expected]
    assert [e.explicit_settings for e in found] == [e.explicit_settings for e in expected]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (f"seed = {10**19}", f"a.h5: seed = {10**19} should be less than"),
        ("seed = 5\nmachines = 0", "a.h5: machines = 0 should be"),
        ("seed = 5\nseed = 6", "a.h5 is not valid TOML"),
        ("seed = 05", "a.h5 is not valid TOML"),
        ("[table]\nseed = 5", "a.h5: unknown option 'table'"),
        ('unknown = """\nseed = 5\n"""', "a.h5: unknown option 'unknown'"),
    ],
)
def test_errors_of_an_experiment_name_its_file_and_seed(text, message):
    with pytest.raises(InputError) as error:
        opening._parse_experiment(text, "a.h5")
    assert message in str(error.value)


def test_a_line_in_a_text_is_no_seed():
    text = 'seed=3\ndata = "digits"\ntest = """\nseed = 5\n"""\n'
    with pytest.raises(InputError) as ours:
        opening._parse_experiment(text, "a.h5")
    with pytest.raises(InputError) as plain:
        Experiment.from_settings(parse_toml(text, "a.h5"), "a.h5")
    assert str(ours.value) == str(plain.value)
