"""The annotation file of a config's data set in COCO's format, before mmdet reads it."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from .coco import check_document
from .findings import Report

#: Findings after which the data set cannot be built.
_FATAL = ('json', 'json-section', 'json-record', 'no-annotations')
#: What boxes alone need not have; with masks, reading the sample says so.
_OPTIONAL = re.compile(r': no (iscrowd|segmentation|iscrowd, segmentation)$')


def report_annotation_file(
    report: Report, split: str, settings: Mapping[str, Any], kind: type | None
) -> bool:
    """Report what is wrong in the annotations; return whether the data set can be built.

    Args:
        report: Takes the findings.
        split: 'train', 'val' or 'test'.
        settings: Of the data set, in the config.
        kind: Its class; another than mmdet's ``CocoDataset`` reads its files in its own way.
    """
    names = [base.__name__ for base in getattr(kind, '__mro__', ())]
    name = settings.get('ann_file')
    if 'CocoDataset' not in names or not isinstance(name, str) or not name:
        return True
    file = os.path.join(settings.get('data_root') or '', name)
    if not os.path.isfile(file):
        return True  # building it says so
    classes = (settings.get('metainfo') or {}).get('classes') or ()
    found = Report(report.dataset, report.root, report.quick)
    check_document(Path(), file, split, classes, found)
    problems = [one for one in found.problems if not _OPTIONAL.search(one.message)]
    report.problems += problems
    if any(problem.kind in _FATAL for problem in problems):
        return False
    if classes:
        given = [one['name'] for one in json.loads(Path(file).read_bytes())['categories']]
        for one in given:
            if one not in classes:
                report.add(
                    'category-unused', file, f'{one!r} is none of the {len(classes)} classes'
                )
    return True
