"""Attacks of an audit, found by listing this folder: modules with `applies(constants)` and `run(context)`."""
