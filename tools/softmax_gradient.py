"""Measure how steep softmax is on attention rows; the code is in ``cb_mm_cli``."""

import sys

from cb_mm_cli.softmax_gradient import main, parse  # noqa: F401

if __name__ == '__main__':
    sys.exit(main())
