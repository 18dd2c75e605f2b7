"""The rows of the table of supported models: configs that mmseg and mmdet ship."""

from __future__ import annotations

from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path


@dataclass(frozen=True)
class Model:
    """One upstream config.

    Attributes:
        family: As its authors call it.
        library: 'mmseg' or 'mmdet'.
        config: Its path below the library's ``configs``.
        width: Channels of its ViT in the config, and those that it is run with.
        side: Of the images, in pixels.
        note: Why it does not work, where its message alone does not say it.
    """

    family: str
    library: str
    config: str
    width: tuple[int, int] | None = None
    side: int = 64
    note: str = ''

    @property
    def key(self) -> str:
        """Its name in the results."""
        return f'{self.library}/{self.config}'

    @property
    def path(self) -> Path:
        """The config in the installed library."""
        spec = find_spec(self.library)
        assert spec is not None
        assert spec.origin is not None
        return Path(spec.origin).parent / '.mim' / 'configs' / self.config


_SEGMENTATION = {
    'FCN': 'fcn/fcn_r50-d8_4xb4-80k_ade20k-512x512.py',
    'PSPNet': 'pspnet/pspnet_r50-d8_4xb4-80k_ade20k-512x512.py',
    'DeepLabV3': 'deeplabv3/deeplabv3_r50-d8_4xb4-80k_ade20k-512x512.py',
    'DeepLabV3+': 'deeplabv3plus/deeplabv3plus_r50-d8_4xb4-80k_ade20k-512x512.py',
    'UPerNet, ResNet': 'upernet/upernet_r50_4xb4-80k_ade20k-512x512.py',
    'UPerNet, ViT': 'vit/vit_deit-s16_upernet_8xb2-160k_ade20k-512x512.py',
    'UPerNet, Swin': 'swin/swin-tiny-patch4-window7-in1k-pre_upernet_8xb2-160k_ade20k-512x512.py',
    'UPerNet, ConvNeXt': 'convnext/convnext-tiny_upernet_8xb2-amp-160k_ade20k-512x512.py',
    'UPerNet, BEiT': 'beit/beit-base_upernet_8xb2-160k_ade20k-640x640.py',
    'UPerNet, MAE': 'mae/mae-base_upernet_8xb2-amp-160k_ade20k-512x512.py',
    'UPerNet, Twins': 'twins/twins_svt-s_uperhead_8xb2-160k_ade20k-512x512.py',
    'SegFormer': 'segformer/segformer_mit-b0_8xb2-160k_ade20k-512x512.py',
    'Segmenter': 'segmenter/segmenter_vit-t_mask_8xb1-160k_ade20k-512x512.py',
    'SETR': 'setr/setr_vit-l_pup_8xb2-160k_ade20k-512x512.py',
    'DPT': 'dpt/dpt_vit-b16_8xb2-160k_ade20k-512x512.py',
    'SegNeXt': 'segnext/segnext_mscan-t_1xb16-adamw-160k_ade20k-512x512.py',
    'OCRNet': 'ocrnet/ocrnet_hr18s_4xb4-80k_ade20k-512x512.py',
    'HRNet': 'hrnet/fcn_hr18s_4xb4-80k_ade20k-512x512.py',
    'CCNet': 'ccnet/ccnet_r50-d8_4xb4-80k_ade20k-512x512.py',
    'PSANet': 'psanet/psanet_r50-d8_4xb4-80k_ade20k-512x512.py',
    'DANet': 'danet/danet_r50-d8_4xb4-80k_ade20k-512x512.py',
    'Non-local': 'nonlocal_net/nonlocal_r50-d8_4xb4-80k_ade20k-512x512.py',
    'GCNet': 'gcnet/gcnet_r50-d8_4xb4-80k_ade20k-512x512.py',
    'EncNet': 'encnet/encnet_r50-d8_4xb4-80k_ade20k-512x512.py',
    'Semantic FPN, PoolFormer': 'poolformer/fpn_poolformer_s12_8xb4-40k_ade20k-512x512.py',
    'Semantic FPN, ResNet': 'sem_fpn/fpn_r50_4xb4-160k_ade20k-512x512.py',
    'PointRend': 'point_rend/pointrend_r50_4xb4-160k_ade20k-512x512.py',
    'K-Net': 'knet/knet-s3_swin-t_upernet_8xb2-adamw-80k_ade20k-512x512.py',
    'MaskFormer': 'maskformer/maskformer_r50-d32_8xb2-160k_ade20k-512x512.py',
    'Mask2Former': 'mask2former/mask2former_r50_8xb2-160k_ade20k-512x512.py',
    'UNet': 'unet/unet-s5-d16_fcn_4xb4-160k_cityscapes-512x1024.py',
    'BiSeNetV1': 'bisenetv1/bisenetv1_r18-d32_4xb4-160k_cityscapes-1024x1024.py',
    'BiSeNetV2': 'bisenetv2/bisenetv2_fcn_4xb4-160k_cityscapes-1024x1024.py',
    'STDC': 'stdc/stdc1_4xb12-80k_cityscapes-512x1024.py',
    'DDRNet': 'ddrnet/ddrnet_23-slim_in1k-pre_2xb6-120k_cityscapes-1024x1024.py',
    'PIDNet': 'pidnet/pidnet-s_2xb6-120k_1024x1024-cityscapes.py',
    'ICNet': 'icnet/icnet_r18-d8_4xb2-80k_cityscapes-832x832.py',
    'Fast-SCNN': 'fastscnn/fast_scnn_8xb4-160k_cityscapes-512x1024.py',
    'MobileNetV3': 'mobilenet_v3/mobilenet-v3-d8-s_lraspp_4xb4-320k_cityscapes-512x1024.py',
    'SAN': 'san/san-vit-b16_coco-stuff164k-640x640.py',
}

_DETECTION = {
    'Faster R-CNN': 'faster_rcnn/faster-rcnn_r50_fpn_1x_coco.py',
    'Mask R-CNN': 'mask_rcnn/mask-rcnn_r50_fpn_1x_coco.py',
    'Mask R-CNN, Swin': 'swin/mask-rcnn_swin-t-p4-w7_fpn_1x_coco.py',
    'Cascade R-CNN': 'cascade_rcnn/cascade-mask-rcnn_r50_fpn_1x_coco.py',
    'HTC without semantic branch': 'htc/htc-without-semantic_r50_fpn_1x_coco.py',
    'Libra R-CNN': 'libra_rcnn/libra-faster-rcnn_r50_fpn_1x_coco.py',
    'PISA': 'pisa/faster-rcnn_r50_fpn_pisa_1x_coco.py',
    'Guided anchoring': 'guided_anchoring/ga-faster-rcnn_r50_fpn_1x_coco.py',
    'Cascade RPN': 'cascade_rpn/cascade-rpn_fast-rcnn_r50-caffe_fpn_1x_coco.py',
    'DCN': 'dcn/mask-rcnn_r50-dconv-c3-c5_fpn_1x_coco.py',
    'DCNv2': 'dcnv2/mask-rcnn_r50-mdconv-c3-c5_fpn_1x_coco.py',
    'Deformable RoI pooling': 'dcn/faster-rcnn_r50_fpn_dpool_1x_coco.py',
    'CARAFE': 'carafe/mask-rcnn_r50_fpn-carafe_1x_coco.py',
    'DetectoRS': 'detectors/cascade-rcnn_r50-sac_1x_coco.py',
    'RetinaNet': 'retinanet/retinanet_r18_fpn_1x_coco.py',
    'FCOS': 'fcos/fcos_r50-caffe_fpn_gn-head_1x_coco.py',
    'ATSS': 'atss/atss_r50_fpn_1x_coco.py',
    'DyHead': 'dyhead/atss_r50_fpn_dyhead_1x_coco.py',
    'GFL': 'gfl/gfl_r50_fpn_1x_coco.py',
    'PAA': 'paa/paa_r50_fpn_1x_coco.py',
    'VFNet': 'vfnet/vfnet_r50_fpn_1x_coco.py',
    'TOOD': 'tood/tood_r50_fpn_1x_coco.py',
    'RepPoints': 'reppoints/reppoints-moment_r50_fpn_1x_coco.py',
    'FoveaBox': 'foveabox/fovea_r50_fpn_gn-head-align_4xb4-2x_coco.py',
    'CenterNet': 'centernet/centernet_r18-dcnv2_8xb16-crop512-140e_coco.py',
    'SSD': 'ssd/ssdlite_mobilenetv2-scratch_8xb24-600e_coco.py',
    'YOLOv3': 'yolo/yolov3_mobilenetv2_8xb24-320-300e_coco.py',
    'YOLOF': 'yolof/yolof_r50-c5_8xb8-1x_coco.py',
    'YOLOX': 'yolox/yolox_tiny_8xb8-300e_coco.py',
    'RTMDet': 'rtmdet/rtmdet_tiny_8xb32-300e_coco.py',
    'RTMDet-Ins': 'rtmdet/rtmdet-ins_tiny_8xb32-300e_coco.py',
    'YOLACT': 'yolact/yolact_r50_1xb8-55e_coco.py',
    'SOLO': 'solo/solo_r50_fpn_1x_coco.py',
    'SOLOv2': 'solov2/solov2-light_r18_fpn_ms-3x_coco.py',
    'CondInst': 'condinst/condinst_r50_fpn_ms-poly-90k_coco_instance.py',
    'DETR': 'detr/detr_r18_8xb2-500e_coco.py',
    'Conditional DETR': 'conditional_detr/conditional-detr_r50_8xb2-50e_coco.py',
    'DAB-DETR': 'dab_detr/dab-detr_r50_8xb2-50e_coco.py',
    'Deformable DETR': 'deformable_detr/deformable-detr_r50_16xb2-50e_coco.py',
    'DINO': 'dino/dino-4scale_r50_8xb2-12e_coco.py',
    'DDQ': 'ddq/ddq-detr-4scale_r50_8xb2-12e_coco.py',
    'Sparse R-CNN': 'sparse_rcnn/sparse-rcnn_r50_fpn_1x_coco.py',
    'QueryInst': 'queryinst/queryinst_r50_fpn_1x_coco.py',
    'Mask2Former': 'mask2former/mask2former_r50_8xb2-lsj-50e_coco.py',
}

#: Published with ViT-B or ViT-L only, whose training step needs more than 3 GiB.
_WIDTHS = {
    'SETR': (1024, 256),
    'UPerNet, BEiT': (768, 192),
    'UPerNet, MAE': (768, 192),
    'DPT': (768, 192),
}
#: Small enough for a minute per row, large enough for 64-fold downsampling.
_SIDES = {'mmseg': 64, 'mmdet': 128}
#: LR-ASPP pools windows of 49 × 49 eighths; DINO and DDQ choose 900 of all positions.
_LARGER_SIDES = {'MobileNetV3': 416, 'DINO': 256, 'DDQ': 256}
_NOTES = {
    'SAN': "upstream initializes it from CLIP's weights only, and nothing is downloaded here",
    'QueryInst': 'random weights put all boxes outside the image, where upstream cannot draw masks',
}

MODELS = tuple(
    Model(
        family,
        library,
        config,
        _WIDTHS.get(family),
        _LARGER_SIDES.get(family, _SIDES[library]),
        _NOTES.get(family, ''),
    )
    for library, configs in (('mmseg', _SEGMENTATION), ('mmdet', _DETECTION))
    for family, config in configs.items()
)
