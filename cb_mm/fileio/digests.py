"""Short digests of files, and of values that JSON can hold."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

from .result_files import plain
from .safe_text import readable


def content_digest(path: str | Path) -> str:
    """Return the SHA-256 of a file, shortened to 16 digits."""
    digest = hashlib.sha256()
    with open(path, 'rb') as stream:
        while block := stream.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()[:16]


def value_digest(value: Any) -> str:
    """Return the SHA-256 of a value, shortened to 16 digits; the order of keys matters."""
    try:  # arrays must not be abbreviated, as str does
        text = json.dumps(value, default=lambda x: getattr(x, 'tolist', x.__str__)())
    except TypeError:  # keys that JSON does not have
        text = json.dumps(plain(value))
    return hashlib.sha256(readable(text).encode()).hexdigest()[:16]
