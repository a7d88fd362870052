"""The model of a result: predictions and coefficients."""
