"""The partitions that are built in, one a module: which machine gets which samples."""
