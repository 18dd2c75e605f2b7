"""Which part of a config an error is put down to."""

from __future__ import annotations

import pytest

from cb_mm.config.explain import explain, explaining_build_errors
from cb_mm.config.loading import load_config
from cb_mm.config.parts import part_at_work, source_line
from cb_mm.errors import UserError


class Loss:
    def __init__(self, weight: object = 1) -> None:
        self.weight = weight

    def __call__(self, value: float) -> float:
        return value / self.weight


class Head:
    def __init__(self, loss: dict) -> None:
        self.loss = Loss(loss['weight'])

    def forward(self) -> float:
        return self.loss(1.0)


class OtherHead(Head):
    """Another class with a loss of the same class."""


class Model:
    def __init__(self, head: dict, auxiliary: dict, test_cfg: dict) -> None:
        self.head, self.auxiliary = Head(head['loss']), OtherHead(auxiliary['loss'])
        self.test_cfg = test_cfg


def config(first: object = 1, second: object = 1) -> dict:
    head = dict(type='Head', loss=dict(type='Loss', weight=first))
    other = dict(type='OtherHead', loss=dict(type='Loss', weight=second))
    return dict(model=dict(type='Model', head=head, auxiliary=other, test_cfg=dict(mode='slide')))


def build(options: dict) -> Model:
    return Model(**{key: value for key, value in options['model'].items() if key != 'type'})


def error_of(job) -> Exception:
    with pytest.raises(Exception) as caught:  # noqa: PT011  (any: that is what is tested)
        job()
    return caught.value


@pytest.mark.parametrize(('part', 'values'), [('head', (0, 1)), ('auxiliary', (1, 0))])
def test_the_same_class_in_two_places(part, values):
    """The frames around it tell which of the two it was."""
    options = config(*values)
    error = error_of(getattr(build(options), part).forward)
    assert part_at_work(error, options) == f'model.{part}.loss (Loss)'


def test_values_in_a_frame_tell_where_no_object_does():
    options = config()

    def read(test_cfg: dict) -> object:
        return test_cfg['stride']

    error = error_of(lambda: read(dict(options['model']['test_cfg'])))
    part = part_at_work(error, options)
    assert part == 'model.test_cfg'
    assert explain(error, part).startswith(
        'model.test_cfg cannot be used: the key "stride" is missing (KeyError).'
    )


def test_a_constructor_with_several_parts_is_what_is_around_them():
    options = config()
    options['model']['auxiliary'] = dict(type='OtherHead')
    assert part_at_work(error_of(lambda: build(options)), options) == 'model (Model)'


def test_an_error_of_no_part():
    assert part_at_work(error_of(lambda: 1 / 0), config()) == ''
    assert part_at_work(ValueError('never raised'), config()) == ''


def test_a_bare_assertion_shows_its_line():
    def check(count: int) -> None:
        assert count == 3

    error = error_of(lambda: check(2))
    error.args = ()
    assert source_line(error) == 'assert count == 3'
    assert 'assert count == 3 (AssertionError)' in explain(error)


def test_the_message_is_one_line():
    with pytest.raises(UserError) as caught, explaining_build_errors('mine.py'):
        raise RuntimeError('first\nsecond\n' * 100)
    assert str(caught.value).startswith('config mine.py: it cannot be used: first (RuntimeError).')
    assert '\n' not in str(caught.value)


@pytest.mark.parametrize('key', ['model', 'train_dataloader', 'val_evaluator', 'optim_wrapper'])
def test_a_comma_behind_a_part_is_named(key, tmp_path):
    file = tmp_path / 'mine.py'
    file.write_text(f"{key} = dict(type='X'),\n")
    with pytest.raises(UserError, match=rf'mine\.py: {key} .* dict, .* tuple: remove the comma'):
        load_config(file)
    file.write_text(f"{key} = dict(type='X')\n")
    assert load_config(file)[key].type == 'X'
    with pytest.raises(UserError, match=rf'mine\.py: {key} must be a dict, but is of type int\.'):
        load_config(file, [f'{key}=5'])
