"""What the user asks for: the settings of an experiment, and of a sweep."""
