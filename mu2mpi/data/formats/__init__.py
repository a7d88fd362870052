"""Formats of files."""
