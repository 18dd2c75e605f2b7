"""Configs: reading, overriding, checking and explaining them; building from them is elsewhere."""

from .loading import (
    apply_schedule,
    apply_test_set,
    dataset_configs,
    load_config,
    replace_sync_bn,
    set_data_root,
)
from .options import parse_options

__all__ = [
    'apply_schedule',
    'apply_test_set',
    'dataset_configs',
    'load_config',
    'parse_options',
    'replace_sync_bn',
    'set_data_root',
]
