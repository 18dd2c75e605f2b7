"""The systems of the papers that TimmCB serves, made small."""

from __future__ import annotations

SWIN = 'swin_tiny_patch4_window7_224'

#: system -> model of timm, arguments that make it small, image size where it is fixed
SYSTEMS: dict[str, tuple[str, dict, int | None]] = {
    'PiT-B': ('pit_b_224', dict(base_dims=(8, 8, 8), depth=(1, 2, 1), heads=(1, 2, 4)), 64),
    'Mixer-S/16': ('mixer_s16_224', {}, 64),
    'PVT-S, nearest in timm': (
        'twins_pcpvt_small',
        dict(embed_dims=(8, 16, 16, 32), num_heads=(1, 1, 2, 2), depths=(1, 1, 2, 1)), None,
    ),
    'PVTv2-B1': (
        'pvt_v2_b1',
        dict(embed_dims=(8, 16, 16, 32), num_heads=(1, 1, 2, 2), depths=(1, 1, 2, 1)), None,
    ),
    'Swin-Ti': (SWIN, dict(embed_dim=8, depths=(1, 1, 2, 1), num_heads=(1, 1, 2, 2)), None),
    'distilled ViT': (
        'deit_small_distilled_patch16_224', dict(embed_dim=24, depth=4, num_heads=2), None,
    ),
    'ConvNeXt, a control': (
        'convnext_tiny', dict(depths=(1, 1, 2, 1), dims=(8, 16, 16, 32)), None,
    ),
    'LocalViT-Ti': (
        'localvit_tiny_patch16_224', dict(embed_dim=24, depth=4, num_heads=2), None,
    ),
}  # fmt: skip
