"""Reading the ``results.json`` of another test: an untrusted file, checked before use."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ..errors import MissingFile, UserError
from ..fileio.json_shape import ListOf, MapOf, mismatch
from ..fileio.result_files import read_json

FORMAT = 'cb_mm robustness results'
VERSION = 2

_NUMBER = (float, None)
#: All that a comparison reads.
_METRIC = {'n': int, 'mean': _NUMBER, 'std': _NUMBER, 'low': _NUMBER, 'high': _NUMBER,
           'values': ListOf(_NUMBER)}  # fmt: skip
#: Of a metric, where there is one; the report and a model card show it.
_OVER_IMAGES = {'low': float, 'high': float}
_CELL = {'key': str, 'title': str, 'corruption': str, 'severity': (int, None), 'random': bool,
         'n': int, 'repeats': ListOf(int), 'metrics': MapOf(_METRIC),
         'per_class': MapOf(MapOf(_NUMBER)), 'curves': MapOf(MapOf(ListOf(_NUMBER)))}  # fmt: skip
_ATTACKS = {'attack_steps': int, 'attack_step_size': float, 'attack_restarts': int,
            'random_start': bool}  # fmt: skip
_RESULTS = {
    'model': str,
    'about': {'checkpoint': (str, None), 'classes': ListOf((str, int))},
    'identity': {'data': str, 'annotations': str, 'images': int, 'seed': int,
                 'frost_pictures': (str, None)},
    'headline': ListOf(str),
    'units': MapOf((str, None)),
    'cells': ListOf(_CELL),
}  # fmt: skip


def read_results(path: str | Path, option: str = 'compare') -> dict[str, Any]:
    """Read the ``results.json`` of a finished sweep.

    Args:
        path: The file or its folder.
        option: What names it in a message.

    Raises:
        UserError: it is something else, or anything that a comparison needs is missing or of
            another kind.
    """
    path = Path(path)
    if path.is_dir():
        path = path / 'results.json'
    if not path.is_file():
        raise MissingFile(
            f'`{option}` {path} does not exist; give the results.json of another test.'
        )
    try:
        results = read_json(path)
    except OSError as error:
        raise UserError(f'`{option}` {path} cannot be read: {error.strerror}.') from error
    except ValueError as error:
        raise UserError(f'`{option}` {path} is not a JSON file ({error}).') from error
    if not isinstance(results, dict) or results.get('format') != FORMAT:
        raise UserError(f'`{option}` {path} was not written by tools/test.py.')
    if results.get('version') != VERSION:
        raise UserError(
            f'`{option}` {path} is of version {str(results.get("version"))[:20]}; this program '
            f'reads {VERSION}. Run its test again, with another `out`.'
        )
    _fill_in(results)
    wrong = mismatch(results, _RESULTS) or _contradiction(results)
    if wrong:
        raise UserError(f'`{option}` {path} is damaged: {wrong}. Run its test again.')
    return results


def _fill_in(results: dict[str, Any]) -> None:
    """Add what older files, or tests without it, do not have."""
    if isinstance(results.get('about'), dict):
        results['about'].setdefault('classes', [])
    if isinstance(results.get('identity'), dict):
        results['identity'].setdefault('frost_pictures', None)  # only where there are any
    for cell in results['cells'] if isinstance(results.get('cells'), list) else ():
        if isinstance(cell, dict):
            cell.setdefault('curves', {})


def read_compared(path: str | Path, option: str = 'compare') -> dict[str, Any]:
    """Return what a comparison needs of a ``results.json``, and nothing that was not checked."""
    path = Path(path)
    folder = path if path.is_dir() else path.parent
    results = read_results(path, option)
    compared = {**_only(results, _RESULTS), 'folder': str(folder)}
    settings = results['identity'].get('attack_settings')  # only where there are such attacks
    if mismatch(settings, _ATTACKS) is None:
        compared['identity']['attack_settings'] = _only(settings, _ATTACKS)
    for kept, cell in zip(compared['cells'], results['cells'], strict=True):
        for name, metric in cell['metrics'].items():
            if metric.get('over_images') is not None:
                kept['metrics'][name]['over_images'] = _only(metric['over_images'], _OVER_IMAGES)
    return compared


def _contradiction(results: dict[str, Any]) -> str | None:
    """Return what is inconsistent, although each single value is of the right kind."""
    cells, headline = results['cells'], results['headline']
    if not cells or not headline:
        return f'{"headline" if cells else "cells"} is empty'
    if len({cell['key'] for cell in cells}) < len(cells):
        return 'two cells have the same key'
    if not set(headline) <= set(results['units']):
        return 'units lacks a metric of the headline'
    for place, cell in enumerate(cells):
        where, repeats = f'cells[{place}]', cell['repeats']
        if cell['severity'] not in (None, 1, 2, 3, 4, 5):
            return f'{where}.severity is not from 1 to 5'
        if not repeats or cell['n'] != len(repeats) or len(set(repeats)) < len(repeats):
            return f'{where}.repeats are not {cell["n"]} different ones'
        if not set(headline) <= set(cell['metrics']):
            return f'{where}.metrics lacks one of the headline'
        for name, metric in cell['metrics'].items():
            if wrong := _metric_contradiction(metric, len(repeats)):
                return f'{where}.metrics.{name}: {wrong}'
    return None


def _metric_contradiction(metric: dict[str, Any], repeats: int) -> str | None:
    values, interval = metric['values'], (metric['low'], metric['high'])
    if metric['n'] != repeats or len(values) != repeats:
        return f'it does not have {repeats} values'
    if metric['mean'] is not None and None in values:
        return 'it has a mean, but not all values'
    if (None in interval) != (interval == (None, None)):
        return 'it has only one end of an interval'
    known = metric['mean'], *interval
    if None not in known and not interval[0] <= metric['mean'] <= interval[1]:
        return 'its mean is outside its interval'
    if metric.get('over_images') is not None:
        return mismatch(metric['over_images'], _OVER_IMAGES, 'over_images')
    return None


def _only(value: Any, shape: Any) -> Any:
    """Return the parts of a value that its shape names."""
    if isinstance(shape, dict):
        return {key: _only(value[key], shape[key]) for key in shape}
    if isinstance(shape, ListOf):
        return [_only(item, shape.item) for item in value]
    if isinstance(shape, MapOf):
        return {key: _only(item, shape.item) for key, item in value.items()}
    return value
