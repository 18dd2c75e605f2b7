"""Table 9 of the paper, for reference beside measured figures."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

#: config -> cell -> mIoU in per cent, as the paper prints it (± is its 95 % confidence interval).
#: ViT-S, 160K iterations. The level of shot noise is our reading: the paper does not give it.
TABLE_9: dict[str, dict[str, str]] = {
    'upernet_vit_s': {
        'clean': '43.3',
        'shot_noise=255': '40.22 ± 0.15',
        'gaussian_noise=5': '42.55 ± 0.08',
        'gaussian_noise=10': '40.22 ± 0.07',
        'gaussian_blur=1': '42.29',
        'gaussian_blur=2': '40.83',
    },
    'upernet_vit_s_cb': {
        'clean': '43.9',
        'shot_noise=255': '41.09 ± 0.09',
        'gaussian_noise=5': '43.44 ± 0.08',
        'gaussian_noise=10': '41.07 ± 0.06',
        'gaussian_blur=1': '43.26',
        'gaussian_blur=2': '41.44',
    },
}


def paper_figures(about: Mapping[str, Any]) -> dict[str, str]:
    """Return the paper's figures, when the config that was tested is the paper's; else nothing."""
    same = (
        about.get('schedule') == '160k'
        and str(about.get('dataset')).rpartition('.')[2] == 'ADE20KDataset'
        and len(about.get('classes') or ()) == 150
    )
    return TABLE_9.get(Path(str(about.get('config'))).stem, {}) if same else {}
