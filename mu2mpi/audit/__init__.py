"""Privacy audit: attacks on messages of real runs, and their lower bounds on the claimed parameters."""
