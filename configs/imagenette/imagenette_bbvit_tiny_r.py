"""BBViT-Tiny of the sparse-attention paper, random attention (R), on Imagenette.

    python tools/train.py configs/imagenette/imagenette_bbvit_tiny_r.py --data-root DIR

Top-1, the paper's (Table 2): 59.37.
Measured by us: not yet.

The labels choose keys, as the paper says. In its code they choose queries:
imagenette_bbvit_tiny.py with ``--cfg-options model.backbone.attention.queries=R``.
"""

_base_ = ['imagenette_bbvit_tiny.py']

model = dict(backbone=dict(attention=dict(window=0, global_ends=False)))
