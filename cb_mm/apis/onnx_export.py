"""A trained segmentor as an ONNX file for any batch and image size, checked with onnxruntime."""

from __future__ import annotations

import contextlib
import json
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..checkpoints.provenance import channel_order
from ..errors import UserError
from ..fileio.atomic import draft_of


class Difference(NamedTuple):
    """How far onnxruntime is from torch at one image size."""

    largest: float  # of all logits
    scale: float  # the largest logit itself

    @property
    def relative(self) -> float:
        """The difference relative to the largest logit: float32 errors grow with the values."""
        return self.largest / self.scale if self.scale else self.largest


class SegmentorLogits(nn.Module):
    """Normalised images (B, 3, H, W) -> logits (B, classes, H, W) of an mmseg segmentor."""

    def __init__(self, segmentor: nn.Module) -> None:
        super().__init__()
        self.segmentor = segmentor

    def forward(self, images: Tensor) -> Tensor:  # noqa: D102
        head = self.segmentor.decode_head
        logits = head(self.segmentor.extract_feat(images))
        return F.interpolate(
            logits, size=images.shape[2:], mode='bilinear', align_corners=head.align_corners
        )


def require_segmentor(model: nn.Module) -> None:
    """Raise a UserError unless the model is one that can be exported."""
    if not hasattr(model, 'decode_head') or isinstance(model.decode_head, nn.ModuleList):
        raise UserError(
            f'the config describes a {type(model).__name__}; only segmentors with one decode head '
            '(EncoderDecoder) can be exported.'
        )


def write_onnx(
    segmentor: nn.Module,
    out: str | Path,
    check_sizes: Sequence[tuple[int, int]],
    tolerance: float,
) -> dict[tuple[int, int], Difference]:
    """Write the file if onnxruntime agrees with torch, for two sizes and batch sizes.

    The mean, the standard deviation and the channel order that the input needs, and the names of
    the classes, are in the file's metadata.

    Args:
        segmentor: In eval mode, on the CPU.
        out: The file; its folder is created.
        check_sizes: Heights and widths to check at.
        tolerance: Largest difference that is accepted, as a share of the largest logit.

    Returns:
        The difference at each size.
    """
    _need('onnx', 'onnxscript', 'onnxruntime')
    require_segmentor(segmentor)
    model = SegmentorLogits(segmentor).eval()
    # Odd numbers of patches, so that no size is taken for a multiple of another.
    example = torch.randn(2, 3, 112, 176, generator=torch.Generator().manual_seed(0))
    with any_size_pooling(), warnings.catch_warnings():
        warnings.simplefilter('ignore')
        program = torch.onnx.export(
            model,
            (example,),
            input_names=['images'],
            output_names=['logits'],
            dynamic_shapes={'images': {0: 'batch', 2: 'height', 3: 'width'}},
            dynamo=True,
            verbose=False,
        )
    assert program is not None  # torch returns None only with its old exporter
    program.model.metadata_props.update(_metadata(segmentor))
    with draft_of(out) as draft:
        program.save(str(draft), external_data=False)
        differences = compare(model, draft, check_sizes)
        require_close(differences, tolerance, out)
    return differences


def compare(
    model: nn.Module, file: Path, sizes: Sequence[tuple[int, int]]
) -> dict[tuple[int, int], Difference]:
    """Return the difference between onnxruntime and torch at each size, on random images."""
    import onnxruntime

    session = onnxruntime.InferenceSession(str(file), providers=['CPUExecutionProvider'])
    generator = torch.Generator().manual_seed(1)
    differences = {}
    for batch, size in enumerate(sizes, start=1):
        images = torch.randn(batch, 3, *size, generator=generator)
        with torch.no_grad():
            expected = model(images)
        result = torch.from_numpy(session.run(None, {'images': images.numpy()})[0])
        if result.shape != expected.shape:
            raise UserError(
                f'{file.name} gives {tuple(result.shape)} for {tuple(images.shape)}, torch gives '
                f'{tuple(expected.shape)}.'
            )
        largest = float((result - expected).abs().max())
        differences[size] = Difference(largest, float(expected.abs().max()))
    return differences


def require_close(
    differences: dict[tuple[int, int], Difference], tolerance: float, out: str | Path
) -> None:
    """Raise a UserError unless every difference is within the tolerance."""
    for (height, width), found in differences.items():
        if not found.relative <= tolerance:  # also when it is not a number
            raise UserError(
                f'{out} was not written: at {height}x{width} onnxruntime differs from torch by '
                f'{found.relative:.2g} of the largest logit, more than the tolerance '
                f'{tolerance:.2g}.'
            )


@contextlib.contextmanager
def any_size_pooling() -> Iterator[None]:
    """Replace adaptive average pooling by one that can be exported for images of any size.

    ONNX has no such operator, and torch's own rewriting holds only for sizes that divide as the
    example does: other images then silently give wrong numbers.
    """
    original = F.adaptive_avg_pool2d
    F.adaptive_avg_pool2d = _pool_by_matrices  # type: ignore[assignment]
    try:
        yield
    finally:
        F.adaptive_avg_pool2d = original


def _pool_by_matrices(x: Tensor, output_size: int | Sequence[int | None]) -> Tensor:
    sizes = (output_size,) * 2 if isinstance(output_size, int) else output_size
    rows, columns = (
        _averages(size, length, x) if size is not None else None
        for size, length in zip(sizes, x.shape[-2:], strict=True)
    )
    x = x if rows is None else rows @ x
    return x if columns is None else x @ columns.transpose(0, 1)


def _averages(cells: int, length: int, like: Tensor) -> Tensor:
    """Return the matrix (cells, length): cell i averages floor(i·l/n) to ceil((i+1)·l/n)."""
    cell = torch.arange(cells, device=like.device).unsqueeze(1)
    place = torch.arange(length, device=like.device).unsqueeze(0)
    start = cell * length // cells
    end = ((cell + 1) * length + cells - 1) // cells
    inside = ((place >= start) & (place < end)).to(like.dtype)
    return inside / inside.sum(dim=1, keepdim=True)


def _metadata(segmentor: nn.Module) -> dict[str, str]:
    prepare = segmentor.data_preprocessor
    facts: dict[str, Any] = {}
    if getattr(prepare, 'mean', None) is not None:
        facts['mean'] = prepare.mean.flatten().tolist()
        facts['std'] = prepare.std.flatten().tolist()
    facts['channel_order'] = channel_order(prepare)
    facts['classes'] = (getattr(segmentor, 'dataset_meta', None) or {}).get('classes')
    return {key: json.dumps(value) for key, value in facts.items() if value is not None}


def _need(*packages: str) -> None:
    from importlib.util import find_spec

    missing = [name for name in packages if find_spec(name) is None]
    if missing:
        raise UserError(f'export needs {", ".join(missing)}: pip install {" ".join(missing)}')
