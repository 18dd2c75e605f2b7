"""The ViTs of the sparse-attention paper: the mean of all tokens, a norm and a linear layer.

MLP ratio 2, dropout 0.1 after the embedding, after both layers of the MLP, and in the attention.
"""

_base_ = ['classifier.py']

num_classes = 10
model = dict(
    data_preprocessor=dict(num_classes=num_classes),
    backbone=dict(
        type='ViTCB',
        arch=dict(
            mlp_ratio=2,
            qkv_bias=False,
            pos_drop_rate=0.1,
            proj_drop_rate=0.1,
            attn_drop_rate=0.1,
        ),
        out_type='mean',
    ),
    head=dict(
        type='LinearClsHead',
        num_classes=num_classes,
        loss=dict(type='CrossEntropyLoss', loss_weight=1.0),
    ),
)
