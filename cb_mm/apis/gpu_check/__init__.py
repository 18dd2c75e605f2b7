"""What a GPU would do, counted without one, and what it does, measured where there is one."""
