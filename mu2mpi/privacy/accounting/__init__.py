"""Accountants, privacy loss distributions, guarantees and group privacy."""
