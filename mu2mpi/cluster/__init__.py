"""Jobs on clusters: their scripts, what starts the ranks inside of one, and what becomes of it."""
