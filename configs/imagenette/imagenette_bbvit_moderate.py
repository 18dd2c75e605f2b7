"""BBViT-Moderate of the sparse-attention paper, R+W+G, on Imagenette.

    python tools/train.py configs/imagenette/imagenette_bbvit_moderate.py --data-root DIR

Top-1, the paper's (Table 3): 73.85.
Measured by us: not yet.
"""

_base_ = [
    '../_base_/models/imagenette_bbvit.py',
    '../_base_/datasets/imagenette_368.py',
    '../_base_/schedules/imagenette_200e.py',
]

model = dict(
    backbone=dict(img_size=368, arch=dict(patch_size=16, embed_dim=1024, depth=6, num_heads=16)),
    head=dict(in_channels=1024),
)
