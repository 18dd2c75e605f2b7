"""What Python users call. Each function takes a config file, a ``Config`` or a built model.

Nothing is printed unless ``verbose`` is set, a ``Config`` is never changed, and every function
returns an object with the figures as fields and ``save(dir)`` for the files that the tools write.
Importing this package switches `cb_mm.safe_io` on.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from .. import safe_io  # noqa: F401

if TYPE_CHECKING:
    from .attention import (
        AttentionPictures,
        AttentionSummary,
        attention_statistics,
        visualize_attention,
    )
    from .benchmarking import BenchmarkReport, benchmark
    from .onnx import OnnxExport, export_onnx
    from .robustness import RobustnessReport, evaluate_robustness
    from .training import TrainingRun, train

#: Where each name comes from; imported on demand, so that one function does not wait for all.
_HOMES = {
    'AttentionPictures': 'attention',
    'AttentionSummary': 'attention',
    'BenchmarkReport': 'benchmarking',
    'OnnxExport': 'onnx',
    'RobustnessReport': 'robustness',
    'TrainingRun': 'training',
    'attention_statistics': 'attention',
    'benchmark': 'benchmarking',
    'evaluate_robustness': 'robustness',
    'export_onnx': 'onnx',
    'train': 'training',
    'visualize_attention': 'attention',
}

__all__ = [
    'AttentionPictures',
    'AttentionSummary',
    'BenchmarkReport',
    'OnnxExport',
    'RobustnessReport',
    'TrainingRun',
    'attention_statistics',
    'benchmark',
    'evaluate_robustness',
    'export_onnx',
    'train',
    'visualize_attention',
]


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(import_module(f'.{_HOMES[name]}', __name__), name)
    raise AttributeError(f'module {__name__!r} has no attribute {name!r}')
