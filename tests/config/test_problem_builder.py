"""Machines that differ: what they cannot do is refused once they are known."""

import pytest
from helpers.unequal_machines import owned_source, write_budgets

from mu2mpi.config.experiment import Experiment
from mu2mpi.core.errors import InputError
from mu2mpi.execution.plan import resolve_plan


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"participation": "uniform:4"}, r"at most 3 \(machines\)"),
        ({"participation": "uniform:3", "rounds": 5}, "--rounds must be at most 4"),
        ({"participation": "by-size", "rounds": 10}, None),
        ({"participation": "by-size", "rounds": 2**32 - 1}, "machine-rounds"),
        ({"participation": "bernoulli:0.0001", "rounds": 1, "seed": 1}, "No machine"),
        ({"budgets": "{}/nobody.toml"}, "budget of z"),
        ({"participation": "trace:{}/trace.csv", "rounds": 3}, "--rounds must be at most 2"),
    ],
)
def test_what_the_machines_cannot_do_is_refused_once_they_are_known(settings, words, tmp_path):
    write_budgets(tmp_path / "nobody.toml", rho={"z": 1.0})
    (tmp_path / "trace.csv").write_text("round,machine\n1,a\n2,b\n")
    source = owned_source(1, [10, 6, 4], 3, 2)
    filled = {k: v.format(tmp_path) if isinstance(v, str) else v for k, v in settings.items()}
    if words is None:
        assert resolve_plan(Experiment(**filled), source, 1).constants.rounds == 10
        return
    with pytest.raises(InputError, match=words):
        resolve_plan(Experiment(**filled), source, 1)


@pytest.mark.parametrize("option", ["budgets", "participation"])
def test_rows_of_files_about_machines_are_told_of_public_data_alone(option, tmp_path):
    rows = [f"0.{i},{i % 2},{'ab'[i % 2]},{1 + i // 2},1.0" for i in range(8)]
    rows[5] = rows[5].replace(",b,", ",,")
    (tmp_path / "data.csv").write_text("\n".join(["x,label,owner,round,rho", *rows]))
    (tmp_path / "machines.csv").write_text("\n".join(["x,label,machine,round,rho", *rows]))
    value = f"{'trace:' if option == 'participation' else ''}{tmp_path / 'machines.csv'}"
    asked = {"data": f"{tmp_path / 'data.csv'}", "features": "x", option: value}
    source = owned_source(1, [10, 6], 3, 2)
    with pytest.raises(InputError, match=r"machine has a value that is missing.*--data-is-public") as refused:
        resolve_plan(Experiment(**asked), source, 1)
    assert "row 7" not in str(refused.value)
    with pytest.raises(InputError, match=r"row 7 .*, a value that is missing; correct or remove it$"):
        resolve_plan(Experiment(**asked, data_is_public=True), source, 1)
