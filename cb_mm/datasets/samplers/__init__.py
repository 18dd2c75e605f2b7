"""The order of samples, and their random numbers, as functions of the seed."""
