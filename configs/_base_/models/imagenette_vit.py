"""The ViTs of the sparse-attention paper: the mean of all tokens, a norm and a linear layer.

MLP ratio 2, dropout 0.1 after the embedding, after both layers of the MLP, and in the attention.
"""

num_classes = 10
model = dict(
    type='ImageClassifier',
    data_preprocessor=dict(
        type='ClsDataPreprocessor',
        num_classes=num_classes,
        mean=[123.675, 116.28, 103.53],
        std=[58.395, 57.12, 57.375],
        to_rgb=True,
    ),
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
