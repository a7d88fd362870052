"""Linear models: margins, the scaling of samples, the ball, and the minimum over it."""
