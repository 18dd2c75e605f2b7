"""What differs between the OpenMMLab families and their surroundings; nothing that users call."""
