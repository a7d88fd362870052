"""Privacy accounting: Gaussian DP, privacy loss distributions, guarantees and group privacy."""
