"""Training, attention, ONNX and benchmark from Python: on a ``Config`` and on a built model."""

from __future__ import annotations

import copy
import dataclasses
import importlib
import inspect
import json
import time
from pathlib import Path

import pytest
import timm
import torch
from mmengine.registry import MODELS, init_default_scope
from mmengine.runner import Runner
from mmengine.visualization import Visualizer
from robustness_models import SmallModel
from tool import main_of

from cb_mm import apis
from cb_mm.apis import (
    attention_statistics,
    benchmark,
    export_onnx,
    predict,
    train,
    visualize_attention,
)
from cb_mm.checkpoints.load_model import load_model
from cb_mm.checkpoints.read import read_checkpoint
from cb_mm.errors import UserError

NO_WORKERS = [
    f'{split}_dataloader.{key}'
    for split in ('train', 'val')
    for key in ('num_workers=0', 'persistent_workers=False')
]


@pytest.fixture(scope='module')
def small(seg) -> SmallModel:
    return seg


@pytest.fixture(scope='module')
def image(scenes) -> Path:
    return sorted((scenes.ade20k / 'images' / 'validation').glob('*.jpg'))[0]


def names(folder: Path) -> set[str]:
    files = (file for file in folder.rglob('*') if file.is_file())
    return {str(file.relative_to(folder)) for file in files if not file.name.startswith('.')}


def test_train_a_config(small, tmp_path, capfd):
    config = small.prepared()
    before = config.to_dict()
    capfd.readouterr()
    run = train(config, work_dir=tmp_path / 'work', cfg_options=NO_WORKERS)
    assert capfd.readouterr() == ('', '')
    assert config.to_dict() == before
    assert run.work_dir == tmp_path / 'work'
    assert run.checkpoint == tmp_path / 'work' / 'iter_6.pth'
    assert set(run.metrics) == {'aAcc', 'mIoU', 'mAcc'}
    written = read_checkpoint(run.checkpoint)['state_dict']
    assert all(torch.equal(value, run.model.state_dict()[key]) for key, value in written.items())
    assert len(run.model.dataset_meta['classes']) == 16
    run.save(tmp_path / 'saved')
    assert names(tmp_path / 'saved') == {'seg.py', 'iter_6.pth'}
    with pytest.raises(UserError, match=r'Pass `resume` .* another `work_dir`\.'):
        train(config, work_dir=tmp_path / 'work', cfg_options=NO_WORKERS)


class Drawing(Visualizer):
    """A visualizer of another class, as mmseg and mmdet have."""


def test_train_a_built_model(small, tmp_path, capfd):
    written = dict(name='own', vis_backends=[dict(type='LocalVisBackend')])
    # As two runs in this process leave behind: mmengine keeps them by class and by name.
    for kind in (Visualizer, Drawing):
        kind.get_instance(**copy.deepcopy(written), save_dir=str(tmp_path / 'first'))
    config = small.prepared()
    config.visualizer = dict(type='Visualizer', **written)
    model = load_model(config, small.checkpoint)
    start = copy.deepcopy(model.state_dict())
    still = [*NO_WORKERS, 'optim_wrapper.optimizer.lr=0.0']
    capfd.readouterr()
    run = train(config, model=model, work_dir=tmp_path / 'work', cfg_options=still)
    assert capfd.readouterr() == ('', '')
    assert run.model is model
    for name, parameter in model.named_parameters():
        assert torch.equal(parameter, start[name]), f'{name} was drawn again'
    assert len(list(tmp_path.glob('work/*/vis_data/config.py'))) == 1
    with pytest.raises(UserError, match=r'^`init`: the model is built'):
        train(config, model=model, init='x.pth', work_dir=tmp_path / 'other')


def test_two_runs_that_begin_in_the_same_second(small, tmp_path, monkeypatch):
    """mmengine names a run by its config and second; the second one got the first one's parts."""
    now = time.localtime()
    options = [*NO_WORKERS, 'default_hooks.checkpoint.interval=3']
    monkeypatch.setattr('time.localtime', lambda *_: now)
    runs = [
        train(small.prepared(), work_dir=tmp_path / name, cfg_options=options)
        for name in ('first', 'second')
    ]
    assert runs[0].runner.experiment_name == runs[1].runner.experiment_name
    for run in runs:
        kept = {file.name for file in run.work_dir.glob('*.pth')}
        assert kept == {'iter_3.pth', 'iter_6.pth'}
        (log,) = run.work_dir.glob('*/*.log')
        assert log.read_text().count('Iter(train) [6/6]') == 1


@pytest.mark.parametrize('kind', ['Config', 'built model'])
def test_attention(kind, small, image, tmp_path, capfd):
    config = small.prepared()
    before = config.to_dict()
    given = (config, small.checkpoint)
    if kind != 'Config':
        given = (load_model(config, small.checkpoint).train(), None)
    capfd.readouterr()
    found = attention_statistics(*given, image, size=(48, 64))
    pictures = visualize_attention(*given, [image], size=(48, 64), formats=['png'])
    assert capfd.readouterr() == ('', '')
    assert config.to_dict() == before
    (model,) = found.models
    assert model.images == 1
    assert len(model.by_depth('entropy')[0]) == 4
    tool = main_of('analyze_attention.py')
    words = [small.config, small.checkpoint, image, '--size', '48x64', '--out', tmp_path / 'tool']
    assert tool([str(word) for word in words]) == 0
    found.save(tmp_path / 'api')
    assert names(tmp_path / 'api') == names(tmp_path / 'tool')
    ours, theirs = (
        json.loads((tmp_path / one / 'summary.json').read_text())['models'][0]['layers']
        for one in ('api', 'tool')
    )
    assert ours == theirs, 'as the tool measures'
    saved = pictures.save(tmp_path / 'pictures')
    assert {path.suffix for path in saved} == {'.png', '.json', '.csv'}
    if kind != 'Config':
        assert given[0].training


def test_the_images_of_a_data_loader(small, tmp_path):
    """A built model with the loader of its test set, as for `evaluate_robustness`."""
    config = small.prepared()
    model = load_model(config, small.checkpoint)
    model.cfg = config
    loader = Runner.build_dataloader(config.test_dataloader)
    files = [loader.dataset.get_data_info(i)['img_path'] for i in range(len(loader.dataset))]
    assert len(files) > 1
    taken = attention_statistics(model, data_loader=loader, size=(48, 64), limit=2)
    given = attention_statistics(model, images=files, size=(48, 64), limit=2)
    assert taken.files['images.jsonl'] == given.files['images.jsonl']
    found = predict(model, data_loader=loader.dataset, limit=2)
    assert [one.source for one in found] == files[:2]
    del model.dataset_meta  # as for a model that the host has built
    assert predict(model, inputs=files[0]).classes == found.classes
    assert found.classes[0] == 'building'
    with pytest.raises(UserError, match='`images` and `data_loader`: give one of them'):
        attention_statistics(model, images=files, data_loader=loader)
    with pytest.raises(UserError, match='`data_loader`: list is not a data set of mmengine'):
        predict(model, data_loader=files)


def test_attention_of_a_timm_model(image):
    torch.manual_seed(0)
    model = timm.create_model('vit_tiny_patch16_224', depth=2)
    found = attention_statistics(model, images=image, compare=model, names=['one', 'two'])
    one, two = (summary.by_depth('entropy')[0].tolist() for summary in found.models)
    assert len(one) == 2
    assert one == two
    with pytest.raises(UserError, match=r'^`size` 64x64: .* takes only 224x224'):
        attention_statistics(model, images=image, size=(64, 64))


def test_a_broken_image_is_named_after_the_others_are_drawn(small, image, tmp_path):
    (tmp_path / 'broken.png').write_text('no image')
    with pytest.raises(UserError, match=r'broken\.png .*\(all other images were drawn\)'):
        visualize_attention(
            small.prepared(), small.checkpoint, [tmp_path / 'broken.png', image],
            size=(48, 64), formats=['png'], out=tmp_path / 'out',
        )  # fmt: skip
    assert (tmp_path / 'out' / f'{image.stem}_grid.png').is_file()


def test_images_are_decoded_once(small, image, tmp_path, monkeypatch):
    from cb_mm.attention import visualization

    read, seen = visualization.read_image, []
    monkeypatch.setattr(visualization, 'read_image', lambda file: seen.append(file) or read(file))
    visualize_attention(
        small.prepared(), small.checkpoint, image, size=(48, 64), formats=['png'], out=tmp_path
    )
    assert seen == [image]


@pytest.mark.parametrize('kind', ['Config', 'built model'])
def test_benchmark(kind, small, tmp_path, capfd):
    config = small.prepared()
    before = config.to_dict()
    source = config if kind == 'Config' else load_model(config, small.checkpoint)
    capfd.readouterr()
    report = benchmark(source, size=(48, 64), repeats=1, train=kind != 'Config', batch=2)
    assert capfd.readouterr() == ('', '')
    assert config.to_dict() == before
    (row,) = report.rows
    assert row.name == ('seg' if kind == 'Config' else 'EncoderDecoder')
    assert (row.train is not None) == (kind != 'Config')
    assert report.table().count('\n') == 3
    report.save(tmp_path)
    assert names(tmp_path) == {f'benchmark.{end}' for end in ('json', 'md', 'png', 'svg')}
    if kind != 'Config':
        weights = torch.load(small.checkpoint, weights_only=True)['state_dict']
        assert all(torch.equal(weights[k], v) for k, v in source.state_dict().items())


@pytest.mark.slow
def test_export_a_config(small, tmp_path, capfd):
    """With FastUPerHead, at sizes and batches (1, 2, 3) that were not those of the export."""
    config = small.prepared()
    before = config.to_dict()
    sizes = [(48, 64), (72, 104), (40, 150)]
    check_export(tmp_path, capfd, config, small.checkpoint, check_sizes=sizes)
    assert config.to_dict() == before


@pytest.mark.slow
def test_export_a_built_model(small, tmp_path, capfd):
    config = small.prepared()
    config.model.auxiliary_head = None
    config.model.decode_head = dict(
        type='FCNHead', in_channels=48, in_index=0, channels=8, num_convs=1, num_classes=3
    )
    config.model.backbone.update(
        arch=dict(embed_dim=48, depth=1, num_heads=3), out_indices=(0,), pyramid=False
    )
    init_default_scope('mmseg')
    model = MODELS.build(config.model).train()
    check_export(tmp_path, capfd, model, check_sizes=[(48, 64)])
    assert model.training


def check_export(folder: Path, capfd, *given: object, check_sizes: list[tuple[int, int]]) -> None:
    """Export silently; the file gives what torch gives, and can be saved elsewhere."""
    out = folder / 'model.onnx'
    capfd.readouterr()
    export = export_onnx(*given, out=out, check_sizes=check_sizes)
    assert capfd.readouterr() == ('', '')
    assert export.file == out
    assert list(export.differences) == check_sizes
    assert all(0 <= found.relative <= 1e-4 for found in export.differences.values())
    assert export.save(folder / 'copy')[0].read_bytes() == out.read_bytes()


def test_export_needs_weights(small, tmp_path):
    with pytest.raises(UserError, match=r'^`checkpoint` is missing'):
        export_onnx(small.prepared(), out=tmp_path / 'x.onnx')


def test_every_function_returns_an_object_that_can_be_saved():
    """A corrupted copy of a data set is the one that is in its folder from the start."""
    functions = [name for name in apis.__all__ if name[0].islower()]
    assert len(functions) > 10
    for name in functions:
        module = importlib.import_module(getattr(apis, name).__module__)
        made = str(inspect.signature(getattr(apis, name)).return_annotation).removesuffix(' | None')
        kind = getattr(module, made)
        assert dataclasses.is_dataclass(kind), name
        if made != 'CorruptedCopy':
            folder, *others = list(inspect.signature(kind.save).parameters.values())[1:]
            assert folder.name == 'folder', name
            assert all(other.default is not other.empty for other in others), name
