"""HDF5 results: their layout, written whole or not at all, and read back."""
