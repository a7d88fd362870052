"""Where samples come from, and which machine gets which of them when."""
