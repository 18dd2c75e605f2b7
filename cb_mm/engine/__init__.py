"""From a config to a run that trains; testing is in ``robustness``, weights in ``checkpoints``."""
