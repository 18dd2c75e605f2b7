"""Draw the curves of training runs; the code is in ``cb_mm_cli``."""

import sys

from cb_mm_cli.plot_curves import main, parse  # noqa: F401

if __name__ == '__main__':
    sys.exit(main())
