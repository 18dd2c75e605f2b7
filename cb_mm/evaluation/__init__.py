"""Metrics that configs name; sweeps over corruptions are in ``robustness``."""
