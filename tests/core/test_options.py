"""Options that name something registered."""

import pytest

from mu2mpi.core.options import registered
from mu2mpi.core.registry import names


def test_only_registered_names_are_taken():
    assert [registered("losses", name) for name in (None, *names("losses"))] == [None, *names("losses")]
    with pytest.raises(ValueError, match=r"huber, .*did you mean logistic\?"):
        registered("losses", "logistics")
    with pytest.raises(ValueError, match="not installed here"):
        registered("losses", "quux")
