"""Noise: the cipher, the sampler, the grid of messages, noise sources and masks."""
