"""``cb-mm attention``: pictures of the attention, or numbers about it."""

from __future__ import annotations

from . import analyze_attention, visualize_attention

_KINDS = {'draw': visualize_attention.main, 'measure': analyze_attention.main}
_USAGE = """usage: cb-mm attention [draw] CONFIG CHECKPOINT IMAGE...
       cb-mm attention measure CONFIG CHECKPOINT IMAGES...

  draw     draw the attention over images, and write a page to explore it (the default)
  measure  entropy, distance and sparsity by layer and head, over many images

Examples:
  cb-mm attention upernet_vit_s upernet_vit_s.pth street.jpg --html
  cb-mm attention measure upernet_vit_s upernet_vit_s.pth val/ --size 224 --limit 500

"cb-mm attention draw --help" and "cb-mm attention measure --help" explain the options.
"""


def main(argv: list[str]) -> int:
    """Draw, unless the first word asks for numbers."""
    if not argv or argv[0] in ('-h', '--help'):
        print(_USAGE, end='')
        return 0 if argv else 2
    kind, *rest = argv
    return _KINDS[kind](rest) if kind in _KINDS else visualize_attention.main(argv)
