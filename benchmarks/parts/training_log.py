"""What mmengine logged of a training."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any


def scalars(folder: Path) -> list[dict[str, Any]]:
    """All lines of all starts, in their order; the last may be cut off by a kill."""
    return [
        json.loads(line)
        for file in sorted(folder.glob('*/vis_data/scalars.json'))
        for line in file.read_text().splitlines()
        if line.endswith('}')
    ]
