"""Participation schedules: one module each."""
