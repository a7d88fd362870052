"""The paper's Algorithms 1 and 2: their constants, what a machine does, what the server does."""
