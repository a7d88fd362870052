"""What a user can cause, told apart from what is our fault."""

__all__ = ["InputError"]


class InputError(ValueError):
    """Something in the user's input cannot be used.

    Its message is shown as it is, without a traceback, and the program ends with code 2.
    A message says what is wrong, where, and the way out.
    """
