"""ViT-Tiny of the sparse-attention paper, full attention, on Imagenette.

    python tools/train.py configs/imagenette/imagenette_vit_tiny.py --data-root DIR

Top-1, the paper's (Table 2): 53.33.
Measured by us: not yet.

The paper counts 7.5 M parameters; at its image size of 184 this model has 6.68 M. See
imagenette_vit_tiny_368.py.
"""

_base_ = [
    '../_base_/models/imagenette_vit.py',
    '../_base_/datasets/imagenette.py',
    '../_base_/schedules/imagenette_200e.py',
]

model = dict(
    backbone=dict(img_size=184, arch=dict(patch_size=8, embed_dim=512, depth=3, num_heads=8)),
    head=dict(in_channels=512),
)
