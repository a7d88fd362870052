"""Hypothesis without its deadline, which a busy processor breaks."""

import hypothesis


def given(*strategies, max_examples=100):
    relaxed = hypothesis.settings(deadline=None, max_examples=max_examples)
    return lambda test: relaxed(hypothesis.given(*strategies)(test))
