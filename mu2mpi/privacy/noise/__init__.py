"""Noise: cipher, samplers and their errors, message grid, noise sources and masks."""
