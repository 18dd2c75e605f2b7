"""Visual question answering: the parts that configs/vqa names.

Nothing else in cb_mm imports this module: only those configs do, by their ``custom_imports``, so
that transformers stays optional. Without it, the import raises a UserError that says which command
installs it.
"""

from importlib.util import find_spec

from ..errors import UserError

if find_spec('transformers') is None:
    raise UserError('ViLT needs transformers. Run: pip install "cb_mm[vqa]"')

from ..datasets.vqa.dataset import VQAv2Dataset
from ..datasets.vqa.transforms import PackVQAInputs, ViltRandAugment, ViltResize
from ..models.vilt.backbone import ViltCB
from ..models.vilt.classifier import ViltVQA, VQAHead
from ..models.vilt.preprocessor import ViltDataPreprocessor
from .vqa_accuracy import VQAv2Accuracy

__all__ = [
    'PackVQAInputs',
    'VQAHead',
    'VQAv2Accuracy',
    'VQAv2Dataset',
    'ViltCB',
    'ViltDataPreprocessor',
    'ViltRandAugment',
    'ViltResize',
    'ViltVQA',
]
