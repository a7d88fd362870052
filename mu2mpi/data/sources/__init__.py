"""Built-in data sources, one per module."""
