"""What is minimised: a convex loss of a linear model, over a ball."""
