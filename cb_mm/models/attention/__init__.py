"""Attention layers that models are built of; measuring attention is in ``cb_mm.attention``."""
