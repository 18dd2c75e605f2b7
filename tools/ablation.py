"""Run an ablation of the paper; the code is in ``cb_mm_cli``."""

import sys

from cb_mm_cli.ablation import main, parse  # noqa: F401

if __name__ == '__main__':
    sys.exit(main())
