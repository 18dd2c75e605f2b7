"""mmseg's decode heads with the same keys and outputs, and less work."""
