"""Export to ONNX; the code is in ``cb_mm_cli``."""

import sys

from cb_mm_cli.export_onnx import main, parse  # noqa: F401

if __name__ == '__main__':
    sys.exit(main())
