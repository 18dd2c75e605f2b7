"""necks."""
