"""Built-in privacy mechanisms, one per module."""
