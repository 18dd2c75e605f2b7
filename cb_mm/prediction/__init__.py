"""Predictions on images, folders, videos and cameras: drawn, counted and written as files."""

from .options import PredictionOptions
from .results import Detections, Ranking, Result, Segmentation, result_of, truth_of
from .run import run_prediction

__all__ = [
    'Detections',
    'PredictionOptions',
    'Ranking',
    'Result',
    'Segmentation',
    'result_of',
    'run_prediction',
    'truth_of',
]
