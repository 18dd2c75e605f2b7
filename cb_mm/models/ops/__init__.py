"""Faster ways to compute convolutions and losses; nothing here has weights."""
