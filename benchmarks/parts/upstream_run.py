"""Run one upstream config: a test under corruption, a training step, a forward pass on CUDA."""

from __future__ import annotations

import inspect
import json
import math
import os
import resource
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NoReturn
from unittest.mock import patch

from cb_mm.fileio.atomic import write_atomically

from .upstream_models import Model

GIB = 2**30
MEMORY = 4 * GIB  # of a process, with what libraries reserve
CORRUPTION, SEVERITY = 'gaussian_noise', 3


def build(config: Any, library: str) -> Any:
    """Build the model with random weights."""
    import torch
    from mmengine.registry import MODELS as REGISTRY
    from mmengine.registry import init_default_scope

    from cb_mm.config.loading import replace_sync_bn

    init_default_scope(library)
    replace_sync_bn(config)
    torch.manual_seed(0)
    model = REGISTRY.build(config.model)
    model.init_weights()
    return model


def test(model: Model, scenes: Path) -> dict[str, Any]:
    """Test random weights on one image, clean and corrupted; return what was tested."""
    import torch

    from cb_mm.apis import evaluate_robustness

    from .upstream_config import small_config

    config = small_config(model, scenes)
    with tempfile.TemporaryDirectory() as folder:
        checkpoint = Path(folder) / 'random.pth'
        torch.save({'state_dict': build(config, model.library).state_dict()}, checkpoint)
        report = evaluate_robustness(
            small_config(model, scenes),
            checkpoint,
            corruptions=[CORRUPTION],
            severity=SEVERITY,
            repeats=1,
            limit=1,
            work_dir=folder,
        )
    assert report is not None
    images = report.results['identity']['images']
    return {'cells': [cell.key for cell in report.cells], 'images': images}


def train(model: Model, scenes: Path) -> dict[str, Any]:
    """Make one training step; return the loss."""
    from cb_mm.apis import train as run_training

    from .upstream_config import small_config

    with tempfile.TemporaryDirectory() as folder:
        run = run_training(small_config(model, scenes), work_dir=folder, seed=0)
        loss = float(run.runner.message_hub.get_scalar('train/loss').current())
    if not math.isfinite(loss):
        raise ValueError(f'the loss is {loss}')
    return {'loss': float(f'{loss:.4g}')}


def cuda(model: Model, scenes: Path) -> dict[str, Any]:
    """Compute the raw outputs on CUDA tensors that have a shape, a type and a device, but no data.

    An op without a stand-in, or a constant left on the CPU, is an error here as on a GPU. Where
    the program itself depends on values (how many boxes are left) it ends: 'partial'.
    """
    import torch
    from mmcv.ops import multi_scale_deform_attn
    from torch._subclasses.fake_tensor import (
        DataDependentOutputException,
        DynamicOutputShapeException,
        FakeTensorMode,
    )

    from .upstream_config import small_config

    network = build(small_config(model, scenes), model.library).eval()
    with (
        # As where CUDA is available: models then choose the compiled op.
        patch.object(multi_scale_deform_attn, 'IS_CUDA_AVAILABLE', True),
        # Reads the tensor's memory, of which there is none.
        patch.object(torch, '_shape_as_tensor', lambda tensor: torch.tensor(tensor.shape)),
        FakeTensorMode(allow_non_fake_inputs=True) as mode,
        torch.no_grad(),
    ):
        for module in network.modules():
            for table in (module._parameters, module._buffers):
                for name, tensor in table.items():
                    if tensor is not None:
                        table[name] = mode.from_tensor(tensor).to('cuda')
        images = torch.zeros(2, 3, model.side, model.side, device='cuda')
        try:
            outputs = _raw_outputs(network, images, _samples(model))
        except (DataDependentOutputException, DynamicOutputShapeException) as error:
            place = _last_upstream_function(error)
            return {'works': False, 'partial': True, 'reason': f'{place} depends on values'}
    devices = {tensor.device.type for tensor in _tensors(outputs)}
    if devices != {'cuda'}:
        raise ValueError(f'outputs are on {devices}')
    return {}


def _raw_outputs(network: Any, images: Any, samples: list[Any]) -> Any:
    import torch

    head = getattr(network, 'decode_head', None)
    if head is not None and 'batch_data_samples' in inspect.signature(head.forward).parameters:
        # Mask classification in mmseg: the segmentor's own 'tensor' mode leaves the samples out.
        return head(network.extract_feat(images), samples)
    if isinstance(head, torch.nn.ModuleList):
        # Heads in stages: 'tensor' mode gives each one the last one's output in place of features.
        return network.encode_decode(images, [sample.metainfo for sample in samples])
    return network(images, samples, mode='tensor')


def _last_upstream_function(error: BaseException) -> str:
    frames = traceback.extract_tb(error.__traceback__)
    names = [f.name for f in frames if '/mmdet/' in f.filename or '/mmseg/' in f.filename]
    return names[-1] if names else 'the model'


def _samples(model: Model) -> list[Any]:
    """Return two samples that say how large the images are."""
    from mmengine.structures import InstanceData

    size = (model.side, model.side)
    info = dict(img_shape=size, ori_shape=size, pad_shape=size, batch_input_shape=size,
                scale_factor=(1.0, 1.0), img_path='none', img_id=0)  # fmt: skip
    if model.library == 'mmseg':
        from mmseg.structures import SegDataSample as Sample
    else:
        from mmdet.structures import DetDataSample as Sample
    samples = [Sample(metainfo=info) for _ in range(2)]
    for sample in samples:
        sample.gt_instances = InstanceData()
    return samples


def _tensors(part: Any) -> list[Any]:
    import torch

    if isinstance(part, torch.Tensor):
        return [part]
    children = part.values() if isinstance(part, dict) else part
    if not isinstance(part, dict | list | tuple):
        return []
    return [tensor for child in children for tensor in _tensors(child)]


STAGES: dict[str, Callable[[Model, Path], dict[str, Any]]] = {
    'test': test,
    'train': train,
    'cuda': cuda,
}


def reason(error: BaseException, model: Model) -> str:
    """Return the first line of a message, and the kind of error unless it is for users."""
    from cb_mm.errors import UserError

    lines = str(error).strip().splitlines() or ['']
    text = lines[0].replace(str(model.path), model.path.name)[:500]
    return text if isinstance(error, UserError) else f'{type(error).__name__}: {text}'


def run_stages(model: Model, scenes: Path, stages: Iterable[str]) -> Iterator[dict[str, Any]]:
    """Run the stages one by one; yield what is known after each."""
    found: dict[str, Any] = {}
    for stage in stages:
        try:
            found[stage] = {'works': True, **STAGES[stage](model, scenes)}
        except Exception as error:
            traceback.print_exc()
            found[stage] = {'works': False, 'reason': reason(error, model)}
        yield found


def warm_up() -> None:
    """Import what every row needs, so that a forked process starts at once."""
    import mmdet.utils
    import mmpretrain.models  # noqa: F401
    import mmseg.utils

    import cb_mm.apis  # noqa: F401

    for utils in (mmseg.utils, mmdet.utils):
        utils.register_all_modules(init_default_scope=False)


def in_a_fork(
    model: Model, scenes: Path, stages: Sequence[str], work: Path, seconds: float = 900
) -> dict[str, Any]:
    """Run the stages in a process of its own, with limits of time and memory."""
    folder = work / model.key.removesuffix('.py')
    folder.mkdir(parents=True, exist_ok=True)
    result = folder / 'result.json'
    result.unlink(missing_ok=True)
    child = os.fork()
    if child == 0:
        _child(model, scenes, stages, folder, result)
    end = time.monotonic() + seconds
    while True:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            why = f'the process ended with code {os.waitstatus_to_exitcode(status)}'
            break
        if time.monotonic() > end:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            why = f'not finished after {seconds:.0f} s'
            break
        time.sleep(0.2)
    found = json.loads(result.read_text()) if result.is_file() else {}
    return {stage: found.get(stage, {'works': False, 'reason': why}) for stage in stages}


def _child(
    model: Model, scenes: Path, stages: Sequence[str], folder: Path, result: Path
) -> NoReturn:
    resource.setrlimit(resource.RLIMIT_DATA, (MEMORY, MEMORY))
    code = 1
    try:
        with (folder / 'log.txt').open('a') as log:
            os.dup2(log.fileno(), 1)
            os.dup2(log.fileno(), 2)
            for found in run_stages(model, scenes, stages):
                write_atomically(result, json.dumps(found))
        code = 0
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
