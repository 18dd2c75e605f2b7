"""The types that --safe-config takes: made from the shipped configs, and looked through."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest
from tool import REPO

from cb_mm.compat.families import current_family
from cb_mm.config.restricted.content import check_content
from cb_mm.config.restricted.files import Reader
from cb_mm.config.restricted.types import ALLOWED, OPTIONS, REFUSED
from cb_mm.errors import UserError

pytestmark = pytest.mark.slow
#: The list was made with the family onedl; the original releases have fewer classes.
ORIGINAL = current_family() == 'openmmlab'
TYPES = runpy.run_path(str(REPO / 'benchmarks' / 'safe_types.py'))
PACKAGES = TYPES['PACKAGES']
#: Types without a class or function in the packages; whose they are was looked up by hand.
ELSEWHERE = {
    # torch
    'Adam', 'AdamW', 'BN', 'BN1d', 'GN', 'LN', 'LeakyReLU', 'PReLU', 'RMSprop', 'ReLU', 'ReLU6',
    'SGD', 'SyncBN',
    # torchvision, whose wrapper evaluates dtype: refused unless it is a plain name
    'torchvision/RandomCrop', 'torchvision/RandomHorizontalFlip', 'torchvision/Resize',
    'torchvision/TrivialAugmentWide',
    # albumentations
    'BboxParams', 'Blur', 'ChannelShuffle', 'HorizontalFlip', 'HueSaturationValue',
    'JpegCompression', 'MedianBlur', 'OneOf', 'RGBShift', 'RandomBrightnessContrast',
    'RandomGamma', 'ShiftScaleRotate', 'VerticalFlip',
    # transformers; their options are restricted
    'AutoModelForCausalLM', 'AutoTokenizer', 'LlamaTokenizer',
    # words of a config, and classes of earlier versions
    'BatchCutMix', 'DefaultFormatBundle', 'IterBasedRunner', 'MOTChallengeMetrics', 'VSRAcc',
    'VizWizAcc', 'conv', 'dilation', 'interpolation_conv', 'last_conv', 'offset', 'qkv',
}  # fmt: skip

#: Types that only the family onedl has.
ONLY_ONEDL = {
    'CLRFPN', 'CLRHead', 'CLRNet', 'CULaneMetric', 'HSIDrive20Dataset',
    'LineDetDataProcessor', 'LinesToArray', 'LoadImageFromNpyFile', 'LoadOneDLSegmentation',
    'PackLineDetectionInputs',
}  # fmt: skip


@pytest.fixture(scope='module')
def contents() -> dict[str, dict[Path, dict | None]]:
    """The data of every config of each package; None where the text is refused."""
    found: dict[str, dict[Path, dict | None]] = {}
    files = {'cb_mm': TYPES['our_configs'](), **{p: TYPES['shipped_configs'](p) for p in PACKAGES}}
    for package, configs in files.items():
        found[package] = {}
        for file in configs:
            try:
                found[package][file] = Reader().read(file)
            except UserError:
                found[package][file] = None
    return found


def passes(content: dict | None) -> bool:
    try:
        check_content(content, '')
    except UserError:
        return False
    return content is not None


@pytest.mark.parametrize(('package', 'at_least', 'share'), [
    ('cb_mm', 40, 1), ('mmseg', 700, 0.95), ('mmdet', 800, 0.95), ('mmpretrain', 800, 0.95),
])  # fmt: skip
def test_safe_mode_takes_the_shipped_configs(contents, package, at_least, share):
    """All files below ``.mim/configs`` count, also scripts, and configs whose bases are missing."""
    passed = sum(map(passes, contents[package].values()))
    print(f'{package}: {passed} of {len(contents[package])}')
    assert len(contents[package]) >= at_least
    assert passed >= share * len(contents[package])


def test_the_list_holds_the_types_of_the_shipped_configs_and_our_own(contents):
    names = TYPES['registered_types'](REPO / 'cb_mm') | TYPES['OWN']
    for configs in contents.values():
        for content in configs.values():
            names |= {*TYPES['types_in'](content)}
    assert names - {*REFUSED} <= ALLOWED
    assert ORIGINAL or names - {*REFUSED} == ALLOWED


def test_no_allowed_type_can_run_its_options():
    """Each call that could, in the source of the class, its bases and its module, was reviewed."""
    found = {(where, call) for name in ALLOWED for where, call in TYPES['calls_to_review'](name)}
    assert {pair for pair in found if pair[0] not in TYPES['REVIEWED']} == set()
    assert {where for where, _ in found} == {*TYPES['REVIEWED']}  # nothing stale


def test_the_source_of_every_allowed_type_was_looked_through():
    absent = {name for name in ALLOWED if name not in TYPES['index']()}
    assert absent == ELSEWHERE | (ONLY_ONEDL if ORIGINAL else set())


def test_the_search_finds_what_the_refused_types_do():
    """Otherwise the two tests above would show nothing."""
    for name, call in {
        'RefCocoDataset': 'mmengine.load',
        'CityScapesMetric': 'shutil.rmtree',
        'SwAVHook': 'torch.load',
        'VPD': 'instantiate_from_config',
        'OpenImagesChallengeDataset': 'np.load',
        'CameraMotionCompensation': 'eval',
        'RFSearchHook': 'eval',
        'KnowledgeDistillationSingleStageDetector': 'Config.fromfile',
        'ReportVQA': 'mmengine.dump',
        'TIMMBackbone': 'timm.create_model',
        'DetVisualizationHook': 'mkdir_or_exist',
        **({} if ORIGINAL else {'ImageAug': 'getattr(iaa)'}),
    }.items():
        assert call in {found for _, found in TYPES['calls_to_review'](name)}, name
    assert not ALLOWED & {*REFUSED}
    assert {*OPTIONS} <= ALLOWED
