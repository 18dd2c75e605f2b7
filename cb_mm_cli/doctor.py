"""Say what is installed, whether it fits together, and how to fix it.

Examples:
  cb-mm doctor
  cb-mm doctor --json             # for a program, or for a bug report
  python -m cb_mm.doctor          # the same; it also runs where nothing else imports

The exit code is 0 when everything fits, 1 when something must be fixed.
"""

from __future__ import annotations

import argparse

from .options import tool_parser


def parse(argv: list[str] | None) -> argparse.Namespace:
    """Read the command line."""
    parser = tool_parser(__doc__)
    parser.add_argument('--json', action='store_true', help='print the report as JSON')
    return parser.parse_args(argv)


def main(argv: list[str] | None = None) -> int:
    """Print the report; 0 when everything fits, 1 when something must be fixed."""
    args = parse(argv)
    from cb_mm.doctor import report  # "from cb_mm import" fails where cb_mm cannot be used

    return report(as_json=args.json)
