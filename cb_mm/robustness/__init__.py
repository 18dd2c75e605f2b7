"""Tests of a model on clean and corrupted images, with statistics that say what they measure."""

from .. import _old_names
from .attacks.fgsm import attack_loss, fgsm
from .attacks.pgd import Attack, Trace, pgd
from .report import write_report
from .results_file import read_results
from .statistics import (
    Difference,
    MeanPerformance,
    Summary,
    difference,
    mean_performance,
    retention,
    summarize,
)
from .sweep import SweepOptions, sweep
from .test_loop import RobustnessTestLoop

__all__ = [
    'Attack',
    'Difference',
    'MeanPerformance',
    'RobustnessTestLoop',
    'Summary',
    'SweepOptions',
    'Trace',
    'attack_loss',
    'difference',
    'fgsm',
    'mean_performance',
    'pgd',
    'read_results',
    'retention',
    'summarize',
    'sweep',
    'write_report',
]
__path__.append(_old_names.folder('robustness'))
