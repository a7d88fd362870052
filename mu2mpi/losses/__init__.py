"""Convex losses of linear models, one module each, their metrics, and the feasible ball."""
