"""What a checkpoint may say about the sizes and types of its arrays."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from cb_mm.checkpoints.arrays import Refused, integers, require_native


@pytest.mark.parametrize('values', [(2, 3), [2, 3], torch.Size([2, 3]), (), (1,) * 32])
def test_sizes_of_a_tensor(values):
    assert integers(values) == tuple(values)


@pytest.mark.parametrize(
    'values',
    [{2: 3}, {2, 3}, '23', 5, None, (1,) * 33, (-1,), (1 << 48,), (2.0,), (True,), ('2',)],
)
def test_impossible_sizes_are_refused(values):
    with pytest.raises(Refused, match='impossible size'):
        integers(values)


def state_of(kind: str) -> tuple:
    return np.dtype(kind).__reduce__()[2]


@pytest.mark.parametrize('kind', ['<f4', '<i8', '|u1', '?'])
def test_plain_numbers(kind):
    require_native(state_of(kind))


@pytest.mark.parametrize('place', [2, 3, 4])  # subarray, names, fields
def test_records_in_an_array_are_refused(place):
    state = list(state_of('<f4'))
    state[place] = ('x',)
    with pytest.raises(Refused):
        require_native(tuple(state))
