"""The trust modes: where noise enters, what crosses the wire, and who may see it; a module for each."""
