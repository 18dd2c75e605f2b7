"""What Python users call. Each function takes a config file, a ``Config`` or a built model.

Nothing is printed unless ``verbose`` is set, a ``Config`` is never changed, and every function
returns an object with the figures as fields and ``save(dir)`` for the files that the tools write
(a `CorruptedCopy` has none: it is a folder already).
During a call `cb_mm.safe_io` is on; afterwards the process is as it was before.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .ablation import AblationReport, run_ablation
    from .attention import (
        AttentionPictures,
        AttentionSummary,
        attention_statistics,
        visualize_attention,
    )
    from .benchmarking import BenchmarkReport, benchmark
    from .corrupting import CorruptedCopy, corrupt_dataset
    from .curves import CurvePlot, plot_curves
    from .gpu_check.checking import GpuReport, check_gpu
    from .onnx import OnnxExport, export_onnx
    from .prediction import Prediction, Predictions, predict
    from .robustness import RobustnessReport, evaluate_robustness
    from .sharing import SharedModel, load_from_hub, push_to_hub
    from .softmax import SoftmaxGradient, softmax_gradient
    from .training import TrainingRun, train

#: Where each name comes from; imported on demand, so that one function does not wait for all.
_HOMES = {
    'AblationReport': 'ablation',
    'AttentionPictures': 'attention',
    'AttentionSummary': 'attention',
    'BenchmarkReport': 'benchmarking',
    'CorruptedCopy': 'corrupting',
    'CurvePlot': 'curves',
    'GpuReport': 'gpu_check.checking',
    'OnnxExport': 'onnx',
    'Prediction': 'prediction',
    'Predictions': 'prediction',
    'RobustnessReport': 'robustness',
    'SharedModel': 'sharing',
    'SoftmaxGradient': 'softmax',
    'TrainingRun': 'training',
    'attention_statistics': 'attention',
    'benchmark': 'benchmarking',
    'check_gpu': 'gpu_check.checking',
    'corrupt_dataset': 'corrupting',
    'evaluate_robustness': 'robustness',
    'export_onnx': 'onnx',
    'load_from_hub': 'sharing',
    'plot_curves': 'curves',
    'predict': 'prediction',
    'push_to_hub': 'sharing',
    'run_ablation': 'ablation',
    'softmax_gradient': 'softmax',
    'train': 'training',
    'visualize_attention': 'attention',
}

__all__ = [
    'AblationReport',
    'AttentionPictures',
    'AttentionSummary',
    'BenchmarkReport',
    'CorruptedCopy',
    'CurvePlot',
    'GpuReport',
    'OnnxExport',
    'Prediction',
    'Predictions',
    'RobustnessReport',
    'SharedModel',
    'SoftmaxGradient',
    'TrainingRun',
    'attention_statistics',
    'benchmark',
    'check_gpu',
    'corrupt_dataset',
    'evaluate_robustness',
    'export_onnx',
    'load_from_hub',
    'plot_curves',
    'predict',
    'push_to_hub',
    'run_ablation',
    'softmax_gradient',
    'train',
    'visualize_attention',
]


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(import_module(f'.{_HOMES[name]}', __name__), name)
    raise AttributeError(f'module {__name__!r} has no attribute {name!r}')
