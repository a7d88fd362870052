"""The machines and the server: what is computed, sampled, sent and noised, in which trust mode."""
