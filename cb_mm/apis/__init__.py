"""What Python users call, one function per task; the tools add only the command line.

Importing it switches `cb_mm.safe_io` on.
"""

from .. import safe_io  # noqa: F401
