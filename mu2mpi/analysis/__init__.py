"""Tables and descriptions made of result files alone."""
