"""Very small segmentors whose outputs are sums over queries: mmseg's MaskFormer, Mask2Former."""

from __future__ import annotations

import torch
from mmengine.config import ConfigDict
from mmengine.registry import init_default_scope

WIDTH, QUERIES = 16, 6


def _matching(**costs) -> dict:
    assigner = dict(
        type='mmdet.HungarianAssigner',
        match_costs=[dict(type=f'mmdet.{name}', **more) for name, more in costs.items()],
    )
    return dict(assigner=assigner, sampler=dict(type='mmdet.MaskPseudoSampler'))


def query_segmentor(kind: str, classes: int = 4) -> torch.nn.Module:
    """Build one with the decode head ``kind``, in evaluation mode."""
    from mmseg.registry import MODELS

    init_default_scope('mmseg')
    torch.manual_seed(0)
    attention = dict(embed_dims=WIDTH, num_heads=2, dropout=0.0, batch_first=True)
    ffn = dict(embed_dims=WIDTH, feedforward_channels=16, num_fcs=2, ffn_drop=0.0,
               act_cfg=dict(type='ReLU', inplace=True))  # fmt: skip
    layer = dict(self_attn_cfg=attention, cross_attn_cfg=attention, ffn_cfg=ffn)
    position = dict(num_feats=WIDTH // 2, normalize=True)
    norms = dict(norm_cfg=dict(type='GN', num_groups=4), act_cfg=dict(type='ReLU'))
    head = dict(
        type=kind,
        in_channels=[8, 16, 32, 64],
        feat_channels=WIDTH,
        out_channels=WIDTH,
        num_queries=QUERIES,
        num_classes=classes,
        positional_encoding=position,
        transformer_decoder=dict(return_intermediate=True, num_layers=2, layer_cfg=layer),
        loss_cls=dict(type='mmdet.CrossEntropyLoss', class_weight=[1.0] * classes + [0.1]),
        loss_dice=dict(type='mmdet.DiceLoss', naive_dice=True, eps=1.0),
    )
    dice = dict(pred_act=True, eps=1.0)
    if kind == 'MaskFormerHead':
        head |= dict(
            pixel_decoder=dict(type='mmdet.PixelDecoder', **norms),
            loss_mask=dict(type='mmdet.FocalLoss', loss_weight=20.0),
            train_cfg=_matching(
                ClassificationCost={}, FocalLossCost=dict(binary_input=True), DiceCost=dice
            ),
        )
    else:
        deformable = dict(attention, num_levels=3, num_points=2)
        encoder = dict(num_layers=1, layer_cfg=dict(self_attn_cfg=deformable, ffn_cfg=ffn))
        head |= dict(
            strides=[4, 8, 16, 32],
            num_transformer_feat_level=3,
            pixel_decoder=dict(
                type='mmdet.MSDeformAttnPixelDecoder',
                num_outs=3,
                encoder=encoder,
                positional_encoding=position,
                **norms,
            ),
            loss_mask=dict(type='mmdet.CrossEntropyLoss', use_sigmoid=True),
            train_cfg=dict(
                num_points=32,
                oversample_ratio=3.0,
                importance_sample_ratio=0.75,
                **_matching(
                    ClassificationCost={},
                    CrossEntropyLossCost=dict(use_sigmoid=True),
                    DiceCost=dice,
                ),
            ),
        )
    return MODELS.build(
        dict(
            type='EncoderDecoder',
            data_preprocessor=dict(
                type='SegDataPreProcessor', mean=[120.0] * 3, std=[60.0] * 3,
                test_cfg=dict(size_divisor=32),
            ),
            backbone=dict(type='ResNetV1c', depth=18, base_channels=8),
            decode_head=ConfigDict(head),
            test_cfg=ConfigDict(mode='whole'),
        )
    ).eval()  # fmt: skip


def labelled_image(classes: int = 4) -> tuple:
    """A uint8 image and its truth, of which some rows have no label."""
    from mmengine.structures import PixelData
    from mmseg.structures import SegDataSample

    generator = torch.Generator().manual_seed(1)
    labels = torch.randint(0, classes, (1, 40, 56), generator=generator)
    labels[:, :5] = 255
    truth = SegDataSample(gt_sem_seg=PixelData(data=labels))
    truth.set_metainfo({'img_shape': (40, 56), 'ori_shape': (40, 56)})
    image = torch.randint(0, 256, (3, 40, 56), dtype=torch.uint8, generator=generator)
    return image, truth


def class_scores(model: torch.nn.Module, image: torch.Tensor, truth) -> torch.Tensor:
    """Return what its paper says of every pixel, from the raw outputs of the head: float64.

    The probability of each class for a query, times the probability that the query covers the
    pixel, summed over the queries.
    """
    data = model.data_preprocessor({'inputs': [image], 'data_samples': [truth.clone()]}, False)
    size = tuple(data['inputs'].shape[-2:])
    data['data_samples'][0].set_metainfo({'batch_input_shape': size})
    with torch.no_grad():
        features = model.extract_feat(data['inputs'])
        classes, masks = model.decode_head(features, data['data_samples'])
    masks = torch.nn.functional.interpolate(masks[-1], size, mode='bilinear')
    chance = classes[-1][0].double().softmax(-1)[:, :-1]
    covers = masks[0].double().sigmoid()[..., :40, :56]
    return torch.stack([sum(p * m for p, m in zip(row, covers, strict=True)) for row in chance.T])
