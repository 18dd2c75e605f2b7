"""Every default stands in one place: the dataclass of the library."""

from __future__ import annotations

import dataclasses
import inspect

import pytest

from cb_mm import apis
from cb_mm.apis.calls import options_from
from cb_mm.attention.analysis import AnalysisOptions
from cb_mm.attention.visualization import VisualizationOptions
from cb_mm.engine.training import TrainOptions
from cb_mm.prediction.options import PredictionOptions
from cb_mm.robustness.sweep import SweepOptions
from cb_mm_cli import analyze_attention, benchmark, export_onnx, predict, train, visualize_attention
from cb_mm_cli import test as test_tool

CALLS = {
    'train': TrainOptions,
    'evaluate_robustness': SweepOptions,
    'attention_statistics': AnalysisOptions,
    'visualize_attention': VisualizationOptions,
    'predict': PredictionOptions,
}
#: In Python results are in memory, and the seed of the noise is 0, where the config has another.
OTHER = {('evaluate_robustness', 'seed'), ('evaluate_robustness', 'out')}
#: The least that a tool can be given, and what it then passes on beside it: a folder for what
#: Python users get in memory, and what argparse collects.
TOOLS = [
    (train, ['c'], {'local_rank'}),
    (test_tool, ['c', 'w'], {'local_rank', 'out'}),
    (analyze_attention, ['c', 'w', 'i'], {'out', 'references'}),
    (visualize_attention, ['c', 'w', 'i'], {'out'}),
    (export_onnx, ['c', 'w', '--out', 'o'], set()),
    (benchmark, ['c'], {'against'}),
    (predict, ['c', 'w', 'i'], {'out'}),
]


@pytest.mark.parametrize('name', CALLS)
def test_a_function_has_the_defaults_of_its_dataclass(name):
    parameters = inspect.signature(getattr(apis, name)).parameters
    fields = {field.name: field.default for field in dataclasses.fields(CALLS[name])}
    shared = [key for key in parameters if key in fields and (name, key) not in OTHER]
    assert len(shared) > 8
    for key in shared:
        if fields[key] is not dataclasses.MISSING and parameters[key].default is not None:
            assert parameters[key].default == fields[key], key


@pytest.mark.parametrize(
    ('tool', 'words', 'more'), TOOLS, ids=[tool.__name__ for tool, *_ in TOOLS]
)
def test_a_tool_passes_on_only_what_was_given(tool, words, more):
    given = vars(tool.parse(words))
    named = {'config', 'configs', 'checkpoint', 'images', 'inputs'}
    assert set(given) - named <= more | ({'out'} if '--out' in words else set())


def test_options_are_taken_by_name():
    given = {'config': 'x.py', 'seed': 3, 'verbose': True, 'init': None}
    options = options_from(TrainOptions, given, init='w.pth')
    assert (options.config, options.seed, options.init) == ('x.py', 3, 'w.pth')
    assert options.launcher == 'none'
