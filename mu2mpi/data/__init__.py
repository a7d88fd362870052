"""Data sources, file formats, and partitions of the training samples among machines."""
