"""The version, kept apart so that it can be read without importing the package."""

__version__ = "0.1.0"
