"""Presets: one module each."""
