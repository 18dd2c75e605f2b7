"""The command line of cb_mm: ``cb-mm COMMAND``, and ``tools/*.py`` for a checkout.

It stands beside the package, not within: importing ``cb_mm`` loads torch and registers everything,
and neither ``--help`` nor a typo should wait for that. Each module parses its options with nothing
but the standard library, makes one library call and prints the result.
"""
