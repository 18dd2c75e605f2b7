"""What several benchmarks share."""
