"""Check a machine with GPUs; the code is in ``cb_mm_cli``."""

import sys

from cb_mm_cli.check_gpu import main, parse  # noqa: F401

if __name__ == '__main__':
    sys.exit(main())
