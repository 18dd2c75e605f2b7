"""BBViT-Tiny of the sparse-attention paper, random + global attention (R+G), on Imagenette.

    python tools/train.py configs/imagenette/imagenette_bbvit_tiny_r_g.py --data-root DIR

Top-1, the paper's (Table 2): 62.39.
Measured by us: not yet.

The labels choose keys, as the paper says. In its code they choose queries:
imagenette_bbvit_tiny.py with ``--cfg-options model.backbone.attention.queries=R+G``.
"""

_base_ = ['imagenette_bbvit_tiny.py']

model = dict(backbone=dict(attention=dict(window=0)))
