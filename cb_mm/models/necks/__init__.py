"""From the one scale of a ViT to the scales that dense heads expect."""
