"""Images changed to fool the model at hand; other corruptions are in ``cb_mm.corruption``."""
