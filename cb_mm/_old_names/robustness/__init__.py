"""Old names of modules in ``cb_mm.robustness``, which looks here last."""
