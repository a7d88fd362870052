"""Convex losses of linear models, one module each, and the ball that they are minimised over."""
