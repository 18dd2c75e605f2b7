"""Classification through mmpretrain: what pre-training and its evaluation need beside it.

Nothing else in cb_mm imports this module: only configs for classification do, by their
``custom_imports``, so that mmpretrain stays optional. Without it, the import raises a UserError
that says which command installs it.
"""

from ..compat.mmpretrain import open_mmpretrain

open_mmpretrain()

from ..datasets.cifar import CIFAR10Images, CIFAR100Images  # noqa: E402  (mmpretrain must be open by now)
from ..datasets.class_folders import ClassFolders  # noqa: E402
from ..datasets.samplers.repeated_augmentation import ReplayRepeatSampler  # noqa: E402
from ..models.distillation import DistilledClassifier, DistilledClsHead  # noqa: E402
from .label_set_accuracy import LabelSetAccuracy  # noqa: E402
from .validation_loss import ValidationLoss  # noqa: E402

__all__ = [
    'CIFAR10Images',
    'CIFAR100Images',
    'ClassFolders',
    'DistilledClassifier',
    'DistilledClsHead',
    'LabelSetAccuracy',
    'ReplayRepeatSampler',
    'ValidationLoss',
]
