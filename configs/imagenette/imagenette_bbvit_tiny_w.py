"""BBViT-Tiny of the sparse-attention paper, window attention (W), on Imagenette.

    python tools/train.py configs/imagenette/imagenette_bbvit_tiny_w.py --data-root DIR

Top-1, the paper's (Table 2): 64.25.
Measured by us: not yet.

The labels choose keys, as the paper says. In its code they choose queries:
imagenette_bbvit_tiny.py with ``--cfg-options model.backbone.attention.queries=W``.
"""

_base_ = ['imagenette_bbvit_tiny.py']

model = dict(backbone=dict(attention=dict(random=0, global_ends=False)))
