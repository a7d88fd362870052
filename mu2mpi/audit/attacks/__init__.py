"""Attacks of an audit, modules of this folder with `attack_applies(constants)` and `run_attack(context)`."""
