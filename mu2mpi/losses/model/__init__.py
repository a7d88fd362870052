"""Linear models: kernels of margins, scaling of samples, and minimisation over the feasible ball."""
