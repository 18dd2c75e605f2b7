"""The embedded data set: drawing it and writing it; nothing about reading it."""
