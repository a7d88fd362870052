"""An attack on the code itself: what its messages give away about one sample, next to what it claims."""
