"""Attention: see it, measure it, explore it.

``capture`` passes on each layer's attention while a model runs; ``measure`` turns a layer into
statistics; ``load_subject`` loads a model from a config or from timm. The tools
``visualize_attention.py`` and ``analyze_attention.py`` are built on these.
"""

from .. import _old_names
from .capture import LayerAttention, capture, find_attention
from .layer_statistics import LayerMeasure, Running, ScaleStatistics, measure, scale_statistics
from .subject import Subject, load_subject
from .tokens import Tokens

__all__ = [
    'LayerAttention',
    'LayerMeasure',
    'Running',
    'ScaleStatistics',
    'Subject',
    'Tokens',
    'capture',
    'find_attention',
    'load_subject',
    'measure',
    'scale_statistics',
]
__path__.append(_old_names.folder('attention'))
