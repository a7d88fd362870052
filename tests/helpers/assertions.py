"""What two results of one experiment have in common, wherever and however often it was run."""

import numpy as np


def assert_same(found, expected):
    assert found.x.tobytes() == expected.x.tobytes()
    assert found.w.tobytes() == expected.w.tobytes()
    assert found.diagnostics == expected.diagnostics
    for name in found.history.column_names():
        if name != "elapsed_seconds":
            np.testing.assert_array_equal(getattr(found.history, name), getattr(expected.history, name))
