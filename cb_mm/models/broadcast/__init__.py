"""Context Broadcasting: the layer, and its insertion into any model; no backbone."""
