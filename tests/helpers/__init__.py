"""Helpers that tests of several folders share: found by `from helpers.launch import mpirun`."""
