"""What COCO's evaluation computes and mmdet's metric does not return."""

from __future__ import annotations

import contextlib
import copy
import io
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np


def mean_of_known(precision: np.ndarray) -> float:
    """Return the mean in per cent; COCO's -1 says that there is no object."""
    known = precision[precision > -1]
    return float(known.mean() * 100) if known.size else float('nan')


def precision_by_image(evaluation: Any, ids: list) -> list[float]:
    """Return the AP of each image alone by COCO's accumulation; NaN without objects."""
    parameters = evaluation.params
    place = {identity: i for i, identity in enumerate(parameters.imgIds)}
    stride = len(parameters.areaRng) * len(place)
    own = copy.copy(evaluation)
    own.params = own._paramsEval = copy.deepcopy(parameters)
    own.params.areaRng, own.params.areaRngLbl = [parameters.areaRng[0]], ['all']
    own.params.maxDets = [parameters.maxDets[-1]]
    values = []
    with contextlib.redirect_stdout(io.StringIO()):
        for identity in ids:
            # COCO keeps class x size x image in one list; of the sizes, 'all' is the first.
            own.params.imgIds = [identity]
            own.evalImgs = [
                evaluation.evalImgs[k * stride + place[identity]]
                for k in range(len(parameters.catIds))
            ]
            own.accumulate()
            values.append(mean_of_known(own.eval['precision']))
    return values


@contextlib.contextmanager
def recorded_evaluations(wanted: bool) -> Iterator[list]:
    """Record the COCOeval objects that CocoMetric creates and does not return."""
    made: list = []
    if not wanted:
        yield made
        return
    from mmdet.evaluation.metrics import coco_metric

    originals: Mapping[str, type] = {
        name: getattr(coco_metric, name)
        for name in ('COCOeval', 'COCOevalMP')
        if hasattr(coco_metric, name)
    }

    def recording(original: type) -> Any:
        def make(*args: Any, **kwargs: Any) -> Any:
            made.append(original(*args, **kwargs))
            return made[-1]

        return make

    try:
        for name, original in originals.items():
            setattr(coco_metric, name, recording(original))
        yield made
    finally:
        for name, original in originals.items():
            setattr(coco_metric, name, original)
