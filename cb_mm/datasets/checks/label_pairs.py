"""Checks of images and their label maps: pairs, files, sizes and labels."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from ...fileio.folders import list_files
from .files import Progress, ReadResult, inspect_image, inspect_labels, run_all, turned_apart
from .files import sample as sample_of
from .findings import Report

#: Endings of files that are probably meant as images.
_IMAGES = ('jpg', 'jpeg', 'png', 'bmp', 'webp', 'tif', 'tiff')


@dataclass(frozen=True)
class PairLayout:
    """One part of a data set: where its pairs are, and what its labels may be.

    Attributes:
        images: Folder of the images, below the root.
        labels: Folder of the label maps.
        image_suffix: How images end.
        label_suffix: How label maps end; what is before is the same in both.
        classes: Number of classes.
        ignored: The label without a class: 0, where classes count from 1, or 255.
        listed: File that lists the pairs; None where the folder does.
        sources: Endings of what label maps are made from, in the same folder; none if it is
            elsewhere.
        how: The command that makes them.
        size: Width and height that all images have; None if they differ.
    """

    images: str
    labels: str
    image_suffix: str = '.jpg'
    label_suffix: str = '.png'
    classes: int = 150
    ignored: int = 0
    listed: str | None = None
    sources: tuple[str, ...] = ()
    how: str = ''
    size: tuple[int, int] | None = None


def check_pairs(
    root: Path,
    split: str,
    layout: PairLayout,
    report: Report,
    progress: Progress | None,
    workers: int | None,
) -> None:
    """Report what is wrong with one part of a data set."""
    needed = [layout.images, layout.labels, *([layout.listed] if layout.listed else [])]
    missing = [name for name in needed if not (root / name).exists()]
    for name in missing:
        what = 'file' if name == layout.listed else 'folder'
        if layout.how and not layout.sources and name != layout.images:
            report.add('not-converted', name, f'the {what} does not exist: {layout.how}')
        else:
            report.add(f'missing-{what}', name, f'the {what} does not exist')
    if not missing:
        pairs = _find_pairs(root, split, layout, report)
        _read_pairs(root, split, layout, pairs, report, progress, workers)


def _find_pairs(root: Path, split: str, layout: PairLayout, report: Report) -> list[str]:
    """Return what images and label maps have in common, and report those that are alone."""
    image_dir, label_dir = Path(layout.images), Path(layout.labels)
    image_files, label_files = (list_files(root / folder) for folder in (image_dir, label_dir))
    images = _stems(image_files, layout.image_suffix)
    labels = _stems(label_files, layout.label_suffix)
    if layout.listed:
        wanted = set((root / layout.listed).read_text().split())
        for stem in sorted(wanted - images):
            file = image_dir / f'{stem}{layout.image_suffix}'
            report.add('image-missing', file, f'{layout.listed} lists it, and it does not exist')
        images &= wanted
        labels &= images  # what is not listed is not used
    else:
        report.check_names(image_dir, image_files)
        report.check_names(label_dir, label_files)
        _report_suffixes(image_dir, image_files, layout, report)
    report.counts[f'{split} images'] = len(images)
    report.counts[f'{split} label maps'] = len(labels)
    if not images:
        report.add('no-images', image_dir, f'there is no {layout.image_suffix} file in the folder')
    sources = {suffix: _stems(label_files, suffix) for suffix in layout.sources}
    made_from = [suffix for suffix, stems in sources.items() if images & stems]
    if images and not labels and made_from:
        report.add(
            'not-converted',
            label_dir,
            f'it has no *{layout.label_suffix}, only *{made_from[0]}: {layout.how}',
        )
        return []
    for stem in sorted(images - labels):
        report.add(
            'label-missing',
            image_dir / f'{stem}{layout.image_suffix}',
            f'there is no {label_dir}/{stem}{layout.label_suffix}',
        )
    for stem in sorted(labels - images):
        report.add(
            'label-alone',
            label_dir / f'{stem}{layout.label_suffix}',
            f'there is no {image_dir}/{stem}{layout.image_suffix}',
        )
    return sorted(images & labels)


def _stems(names: list[str], suffix: str) -> set[str]:
    return {name.removesuffix(suffix) for name in names if name.endswith(suffix)}


def _report_suffixes(folder: Path, names: list[str], layout: PairLayout, report: Report) -> None:
    for name in names:
        dot, suffix = '.' if '.' in name else '', name.rpartition('.')[2]
        if not name.endswith(layout.image_suffix) and suffix.lower() in _IMAGES:
            ending, wanted = f'{dot}{suffix}', layout.image_suffix
            report.add('suffix', folder / name, f'ends in {ending}, only {wanted} is read')


def _read_pairs(
    root: Path,
    split: str,
    layout: PairLayout,
    pairs: list[str],
    report: Report,
    progress: Progress | None,
    workers: int | None,
) -> None:
    def files(stem: str) -> tuple[Path, Path]:
        image, label = f'{stem}{layout.image_suffix}', f'{stem}{layout.label_suffix}'
        return Path(layout.images) / image, Path(layout.labels) / label

    def read(stem: str) -> tuple[ReadResult, ReadResult]:
        image, label = files(stem)
        found = inspect_labels(root / label, layout.classes, layout.ignored)
        return inspect_image(root / image), found

    chosen = sample_of(pairs) if report.quick else pairs
    report.counts[f'{split} pairs read'] = len(chosen)
    for stem, (image, label) in zip(chosen, run_all(read, chosen, progress, workers), strict=True):
        image_file, label_file = files(stem)
        for kind, message in image.findings:
            report.add(kind, image_file, message)
        for kind, message in label.findings:
            report.add(kind, label_file, message)
        if turned_apart(image, label.size):
            report.add('orientation', image_file, f'has the EXIF orientation {image.orientation}')
        elif image.size and label.size and image.size != label.size:
            report.add(
                'label-size',
                label_file,
                f'is {label.size[0]}x{label.size[1]}, its image is {image.size[0]}x{image.size[1]}',
            )
        elif layout.size and image.size and image.size != layout.size:
            (width, height), (w, h) = image.size, layout.size
            report.add('resized', image_file, f'is {width}x{height}; the release has {w}x{h}')
