"""Faster ways to compute convolutions and losses; nothing that has weights of its own."""
