"""mmseg's segmentors with the same keys and outputs, and less work."""
