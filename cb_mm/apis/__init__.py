"""What Python users call, one function per task; the tools add only the command line."""
