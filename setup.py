"""Kept for tools that still call it; everything is declared in pyproject.toml."""

from setuptools import setup

setup()
