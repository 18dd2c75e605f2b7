"""Files of every kind: atomic writing, locks, JSON lines, images; nothing about models."""
