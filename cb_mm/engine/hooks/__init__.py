"""Hooks for mmengine's Runner, all registered; configs name them."""
