"""Trust modes, one module each: noise placement, collectives and released values."""
