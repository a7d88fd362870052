"""Options whose values are names of registered components."""

import pytest

from mu2mpi.core.options import check_registered_name
from mu2mpi.core.registry import known_names


def test_only_registered_names_are_accepted():
    assert [check_registered_name("losses", name) for name in (None, *known_names("losses"))] == [
        None,
        *known_names("losses"),
    ]
    with pytest.raises(ValueError, match=r"huber, .*did you mean logistic\?"):
        check_registered_name("losses", "logistics")
    with pytest.raises(ValueError, match="not installed here"):
        check_registered_name("losses", "quux")
