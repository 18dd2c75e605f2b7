"""The types that a safe config may name, and the options of some that it may not.

``allowed_types.txt`` is written by ``benchmarks/safe_types.py``: the types in the configs of cb_mm,
mmseg, mmdet and mmpretrain, and those that cb_mm registers, without the refused ones below. A test
regenerates and compares it, and searches the source of every class for calls that could run what
they are given.
"""

from __future__ import annotations

from pathlib import Path

_PICKLE = 'it unpickles a file that its options name'
_IMPORT = 'it imports and calls what its options name'

#: type -> why. All are in configs of mmseg, mmdet or mmpretrain.
REFUSED: dict[str, str] = {
    'CityScapesMetric': 'it deletes the folder that outfile_prefix names',
    'DODDataset': _PICKLE,
    'DSDLDetDataset': 'it reads YAML in an unsafe way',
    'DSDLSegDataset': 'it reads YAML in an unsafe way',
    'DeepSpeedStrategy': _IMPORT,
    'Detectron2Wrapper': 'Detectron2 unpickles its weights',
    'FSDPStrategy': _IMPORT,
    'FlexibleRunner': _IMPORT,
    'ImageAug': 'it calls what its options name, which may write files',
    'ImageToImageRetriever': _PICKLE,
    'LoadMultipleRSImageFromFile': 'GDAL opens addresses and programs as well as images',
    'OpenImagesChallengeDataset': _PICKLE,
    'OpenImagesDataset': _PICKLE,
    'RefCocoDataset': _PICKLE,
    'RefCOCO': _PICKLE,
    'SwAVHook': _PICKLE,
    'VPD': _IMPORT,
}

_HUB = {'name_or_path': r'.*', 'use_fast': r'.*', 'local_files_only': r'.*', '*': None}
#: A file or folder below the current one.
_INSIDE = r'(?![/\\~]|[A-Za-z]:|\w+://)(?!(.*[/\\])?\.\.([/\\]|$)).*'
#: type -> option -> pattern that its value must match; None: never; '*': all other options
OPTIONS: dict[str, dict[str, str | None]] = {
    'BertModel': {'name': r'[\w-][\w.-]*(/[\w-][\w.-]*)?'},
    'CameraMotionCompensation': {
        'warp_mode': r'cv2\.MOTION_(TRANSLATION|EUCLIDEAN|AFFINE|HOMOGRAPHY)'
    },
    'MOTChallengeMetric': {'outfile_prefix': None},
    'ReportVQA': {'file_path': _INSIDE},
    'TIMMBackbone': {'model_name': r'[\w.-]+'},  # of timm itself, not anyone's on the hub
    'WithCB': {'pattern': r'(?!re:).*'},  # a regular expression can take forever
    # from_pretrained() of transformers takes many options, some of which run code.
    'AutoModelForCausalLM': _HUB,
    'AutoTokenizer': _HUB,
    'Blip2Tokenizer': _HUB,
    'BlipTokenizer': _HUB,
    'LlamaTokenizer': _HUB,
    'OFATokenizer': _HUB,
    'OPTForCausalLM': _HUB,
}

ALLOWED = frozenset(Path(__file__).with_name('allowed_types.txt').read_text('utf-8').split())
