"""BBViT-Tiny of the sparse-attention paper, R+W+G, on Imagenette.

    python tools/train.py configs/imagenette/imagenette_bbvit_tiny.py --data-root DIR

Top-1, the paper's (Table 2): 64.58.
Measured by us: not yet.

The paper counts 6.8 M parameters; at its image size of 184 this model has 5.90 M.
"""

_base_ = [
    '../_base_/models/imagenette_bbvit.py',
    '../_base_/datasets/imagenette.py',
    '../_base_/schedules/imagenette_200e.py',
]

model = dict(
    backbone=dict(img_size=184, arch=dict(patch_size=8, embed_dim=512, depth=3, num_heads=8)),
    head=dict(in_channels=512),
)
