"""Types of NumPy arrays in annotations; importing them does not import NumPy, which takes 0.1 s."""

from typing import TYPE_CHECKING

from typing_extensions import TypeAliasType

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

BoolArray = TypeAliasType("BoolArray", "NDArray[np.bool_]")
FloatArray = TypeAliasType("FloatArray", "NDArray[np.float64]")
IntArray = TypeAliasType("IntArray", "NDArray[np.int64]")
UInt32Array = TypeAliasType("UInt32Array", "NDArray[np.uint32]")
