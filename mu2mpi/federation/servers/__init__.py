"""Trust modes, one module each: where noise enters, what crosses the wire, and who may see it."""
