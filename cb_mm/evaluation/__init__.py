"""Metrics that configs name, and the interval behind every ±; sweeps are in ``robustness``."""
