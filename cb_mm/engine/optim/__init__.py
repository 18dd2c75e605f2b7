"""Optimizer wrappers and their constructors; schedules are in ``configs``."""
