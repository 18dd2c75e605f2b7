"""BBViT-Tiny of the sparse-attention paper, random + window attention (R+W), on Imagenette.

    python tools/train.py configs/imagenette/imagenette_bbvit_tiny_r_w.py --data-root DIR

Top-1, the paper's (Table 2): 63.39.
Measured by us: not yet.

The labels choose keys, as the paper says. In its code they choose queries:
imagenette_bbvit_tiny.py with ``--cfg-options model.backbone.attention.queries=R+W``.
"""

_base_ = ['imagenette_bbvit_tiny.py']

model = dict(backbone=dict(attention=dict(global_ends=False)))
