"""The page on result files leaves nothing out."""

from pathlib import Path

import h5py

from mu2mpi.config.experiment_options import option_fields

PROJECT = Path(__file__).parents[2]


def test_every_path_and_attribute_of_a_file_is_documented(folder):
    text = (PROJECT / "docs" / "reference" / "result-file.md").read_text()
    names = set()
    with h5py.File(next(folder.glob("*.h5"))) as file:
        assert {*file["experiment"].attrs} <= {*option_fields()}
        file.visititems(lambda name, thing: names.update([name.split("/")[-1], *thing.attrs]))
        names.update(name for name in file.attrs if not name.endswith("_version"))
    known = {*option_fields(), "CLASS", "NAME", "REFERENCE_LIST", "DIMENSION_LIST", "_Netcdf4Dimid"}
    assert [
        name for name in sorted(names - known) if f"`{name}`" not in text and f"/{name}`" not in text
    ] == []
