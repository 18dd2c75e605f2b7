"""Old names of modules in ``cb_mm.models``, which looks here last."""
