"""Write the embedded data set; the code is in ``cb_mm_cli``."""

import sys

from cb_mm_cli.make_scenes import main, parse  # noqa: F401

if __name__ == '__main__':
    sys.exit(main())
