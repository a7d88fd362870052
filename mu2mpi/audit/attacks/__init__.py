"""Attacks of an audit, one a module: each class derived from `Attack` is found by listing this folder."""
