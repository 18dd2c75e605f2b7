"""Configs and report of pipeline.py."""
