"""Attacks of an audit, modules of this folder with `applies_to(constants)` and `run_attack(context)`."""
