"""Read mmengine's training log."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any


def scalars(folder: Path) -> list[dict[str, Any]]:
    """Read all lines of all starts, in order; a kill may have truncated the last."""
    return [
        json.loads(line)
        for file in sorted(folder.glob('*/vis_data/scalars.json'))
        for line in file.read_text().splitlines()
        if line.endswith('}')
    ]
