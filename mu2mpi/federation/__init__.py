"""Simulated federation: machines, server, batching, messages, noise and trust modes."""
