"""Presets of settings, one module each."""
