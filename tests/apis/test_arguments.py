"""Values of a wrong type, given to functions of the Python interface, are refused by name."""

from __future__ import annotations

import re

import numpy as np
import pytest
import torch
from mmengine.config import Config
from mmengine.evaluator import Evaluator
from mmengine.model import BaseModel
from mmseg.evaluation import IoUMetric
from mmseg.models import EncoderDecoder

from cb_mm import apis
from cb_mm.apis.arguments import check_arguments
from cb_mm.config import load_config
from cb_mm.errors import UserError
from cb_mm.robustness.given import config_of, describe_metrics

CONFIG = Config()
TRAINING = load_config('demo_upernet_vit_ti_cb')
WRONG = [
    (apis.evaluate_robustness, (None,), {}, '`model_or_config` NoneType: this is not of type'),
    (apis.evaluate_robustness, (CONFIG, {}), {}, '`checkpoint` dict: this is not of type str | P'),
    (
        apis.evaluate_robustness, (CONFIG, 'x'), {'corruptions': 'fog=3'},
        "`corruptions` 'fog=3': this is not of type Sequence[str]. Pass a list: ['fog=3'].",
    ),
    (
        apis.evaluate_robustness, (CONFIG, 'x'), {'metrics': ['calibrationn']},
        "`metrics`: 'calibrationn' is not known",
    ),
    (
        apis.evaluate_robustness, (CONFIG, 'x'), {'attacks': ['pgd=4'], 'random_start': 'no'},
        "`random_start` 'no': this is not of type bool.",
    ),
    (apis.train, (CONFIG,), {'seed': 'x'}, "`seed` 'x': this is not of type int | None."),
    (apis.train, (TRAINING,), {'seed': -1}, '`seed` -1 is not between 0 and'),
    (apis.train, (TRAINING,), {'logger': 'json'}, '`logger` json is not one of tensorboard, wandb'),
    (apis.train, (TRAINING,), {'launcher': 'bash'}, '`launcher` bash is not one of none, pytorch'),
    (apis.train, (CONFIG,), {'cfg_options': {'a': 1}}, '`cfg_options` dict: this is not of type'),
    (apis.attention_statistics, (CONFIG, 'x', 'y'), {'size': 64}, '`size` 64: this is not of type'),
    (apis.attention_statistics, (CONFIG, 'x', 'y'), {'size': (0, 64)}, '`size` (0, 64): at least'),
    (apis.visualize_attention, (CONFIG, 'x', 'y'), {'layers': 3}, 'Pass a list: [3].'),
    (apis.visualize_attention, (CONFIG, 'x', np.zeros((2, 2, 3))), {}, '`images` ndarray: this is'),
    (apis.attention_statistics, (CONFIG, 'x', 'y'), {'limit': 0}, '`limit` 0: at least one image'),
    (apis.predict, (CONFIG, 'x', 3.5), {}, '`inputs` 3.5: this is not of type'),
    (apis.export_onnx, (CONFIG, 'x'), {'out': 'y', 'check_sizes': [(32,)]}, '`check_sizes` list:'),
    (apis.corrupt_dataset, (torch.nn.Linear(1, 1), 'x'), {}, '`config` Linear: this is not of'),
    (apis.benchmark, ({'model': 1},), {}, '`models_or_configs` dict: this is not of type'),
    (apis.benchmark, ([],), {}, '`models_or_configs` names no model.'),
    (apis.benchmark, (CONFIG,), {'repeats': 0}, '`repeats` 0: at least 1 is needed.'),
    (apis.benchmark, (CONFIG,), {'threads': 0}, '`threads` 0: at least 1 is needed.'),
    (apis.benchmark, (CONFIG,), {'size': (0, 64)}, '`size` 0: at least 1 is needed.'),
]  # fmt: skip


@pytest.mark.parametrize(('function', 'args', 'more', 'message'), WRONG)
def test_a_wrong_value_is_refused_by_name(function, args, more, message):
    with pytest.raises(UserError, match=re.escape(message)):
        function(*args, **more)


def test_what_can_stand_for_a_type_is_taken():
    """Numbers and lists of numpy, a device for its name, anything that yields paths."""
    for args, more in [
        ((CONFIG, 'x', ['a', 'b']), {'size': [64, 96], 'limit': np.int64(1)}),
        ((CONFIG, 'x', (name for name in 'ab')), {'device': torch.device('cpu')}),
        ((CONFIG, 'x', np.array(['a'])), {'verbose': 1, 'percentiles': np.array([15.0])}),
    ]:
        check_arguments(apis.attention_statistics, args, more)


def test_a_model_of_a_class_of_ones_own_is_of_the_family_that_it_derives_from():
    class Mine(EncoderDecoder):
        def __init__(self) -> None:
            BaseModel.__init__(self)

    assert config_of(Mine()).default_scope == 'mmseg'
    with pytest.raises(UserError, match='Linear is not a model of mmseg'):
        config_of(torch.nn.Linear(1, 1))


def test_an_evaluator_stands_for_its_metrics():
    metric = IoUMetric()
    assert describe_metrics(CONFIG, Evaluator([metric])) == [metric]
