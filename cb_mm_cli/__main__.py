"""``python -m cb_mm_cli COMMAND``: the same as ``cb-mm COMMAND``, also under torchrun."""

import sys

from .command import main

sys.exit(main())
