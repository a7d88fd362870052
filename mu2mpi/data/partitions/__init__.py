"""Built-in partitions of the training samples, one per module."""
