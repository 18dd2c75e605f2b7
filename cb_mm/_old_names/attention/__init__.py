"""Old names of modules in ``cb_mm.attention``, which looks here last."""
