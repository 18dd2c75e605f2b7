"""The paper's ablations: every row trains, and a run that was stopped goes on where it was."""

from __future__ import annotations

import json

import pytest
from one_step import one_step
from tiny_imagenet import write_imagenet
from tool import CONFIGS, REPO, config_file, main_of, write_config

pytest.importorskip('mmpretrain', reason='classification needs mmpretrain')

import cb_mm.apis.ablation as ablation
from cb_mm.apis import run_ablation
from cb_mm.apis.ablations import ABLATIONS, HEADS, row_changes
from cb_mm.apis.curves import read_curves
from cb_mm.config.loading import load_config
from cb_mm.engine.head_width import follow_uniform_head
from cb_mm.errors import UserError
from cb_mm_cli.ablation import NAMES, command

ROWS = {f'{name}-{row.label}': row for name, one in ABLATIONS.items() for row in one.rows}
#: Sets every model to two narrow layers; the rows' own options still apply.
SMALL = [
    'model.backbone.img_size=32',
    'model.backbone.arch_changes.embed_dim=24',
    'model.head.in_channels=24',
    'model.head.num_classes=3',
]
#: A config of a user's own, without a Mixup that blends the few images of a test.
OWN = """
_base_ = ['{configs}/imagenette/imagenette_vit_tiny.py']
model = dict(
    backbone=dict(
        _delete_=True, type='ViTCB', arch='tiny', img_size=32, out_type='cls',
        arch_changes=dict(patch_size=8, embed_dim=24, depth=2),
    ),
    head=dict(in_channels=24, num_classes=3),
)
pipeline = [
    dict(type='LoadImageFromFile'), dict(type='Resize', scale=(32, 32)), dict(type='PackInputs'),
]
loader = dict(num_workers=0, persistent_workers=False, batch_size=6,
              dataset=dict(pipeline=pipeline))
train_dataloader = loader
val_dataloader = loader
train_cfg = dict(max_epochs=2)
default_hooks = dict(checkpoint=dict(save_best=None))
"""


def test_the_count():
    assert list(ABLATIONS) == list(NAMES)
    assert len(ROWS) == 6 + 9 + 3 + 7 + 10 + 10 + 2 * len(HEADS) + 3
    for one in ABLATIONS.values():
        assert len({row.folder for row in one.rows}) == len(one.rows)


@pytest.mark.parametrize('label', ROWS)
def test_every_row_trains_a_step(label):
    row = ROWS[label]
    heads = [option for option in row.options if 'num_heads' in option]
    depth = [option for option in row.options if 'depth' in option]
    small = [
        *(SMALL if not heads else [option.replace('=24', '=48') for option in SMALL]),
        *([] if depth else ['model.backbone.arch_changes.depth=2']),
        *([] if heads else ['model.backbone.arch_changes.num_heads=3']),
    ]
    model, loss = one_step(config_file(row.recipe), [*small, *row.options])
    assert 0 < loss < 5
    backbone, options = model.backbone, dict(o.split('=') for o in row.options)
    assert str(backbone.broadcast) == options.get('model.backbone.broadcast', 'None')
    if options.get('model.backbone.layers') == 'all':
        assert backbone.broadcast_layers == (0, 1)
    if heads:
        assert backbone.blocks[0].attn.num_heads == int(heads[0].split('=')[1])
    if 'model.backbone.extra_layer' in options:
        assert len(backbone.blocks) == 9
    if '(C)' in label:  # found by itself
        assert model.head.layers.head.in_features == 32


@pytest.mark.parametrize('name', ['upernet_vit_s', 'mask_rcnn_vit_s', 'imagenet_vit_s'])
def test_heads_follow_the_additional_uniform_head(name):
    config = load_config(config_file(name), ['model.backbone.attention=uniform_c'])
    before = config.model.to_dict()
    follow_uniform_head(config)
    model = config.model
    if 'upernet' in name:
        assert model.decode_head.in_channels == [448] * 4
        assert model.auxiliary_head.in_channels == 448
    elif 'mask' in name:
        assert model.neck.in_channels == [448] * 4
        assert model.rpn_head.in_channels == before['rpn_head']['in_channels'] == 256
    else:
        assert model.head.in_channels == 448
    follow_uniform_head(config)
    assert '512' not in str(model.get('head'))  # once


def test_extra_layers_add_nearly_the_same_parameters():
    """Figure 3: 4 C² and a few, for both."""
    counts = {}
    for kind in (None, 'attn', 'mlp'):
        from cb_mm.models import ViTCB

        vit = ViTCB('small', arch_changes=dict(depth=8), extra_layer=kind, out_type='cls')
        counts[kind] = sum(p.numel() for p in vit.parameters())
    extra = [counts[kind] - counts[None] for kind in ('attn', 'mlp')]
    assert extra[0] == 4 * 384**2 + 6 * 384
    assert extra[1] == 4 * 384**2 + 5 * 384


def test_full_scale_commands(capsys):
    assert main_of('ablation.py')(['table2', '--commands']) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 9
    assert lines[4] == (
        'python tools/train.py configs/imagenet/imagenet_vit_s_cb.py --data-root DIR '
        '--cfg-options model.backbone.broadcast=cb model.backbone.layers=all'
    )
    # With a config of one's own, a part of the rows, another folder of data and more options.
    words = ['table2', '--config', 'my own.py', '--rows', 'ViT-B', '--data-root', '/data/x']
    assert main_of('ablation.py')([*words, '--commands', '--cfg-options', 'a.b=[1, 2]']) == 0
    assert capsys.readouterr().out == (
        "python tools/train.py 'my own.py' --data-root /data/x --cfg-options "
        'model.backbone.arch=base model.head.in_channels=768 model.backbone.broadcast=None '
        "model.backbone.layers=None 'a.b=[1, 2]'\n"
    )
    assert main_of('ablation.py')(['table2', '--rows', 'ViT-L', '--commands']) == 2
    assert "'ViT-L' is not one of" in capsys.readouterr().err
    page = (REPO / 'docs' / 'ablations.md').read_text()
    for one in ABLATIONS.values():
        assert one.title in page
        for row in one.rows:
            cells = [row.label, *(str(row.paper[name]) for name in sorted(row.paper))]
            assert f'| {" | ".join(cells)} | ' in page, cells  # with the paper's digits
            assert command(row.recipe, row.options) in page, row.label
            assert (CONFIGS / 'imagenet' / f'{row.recipe}.py').is_file()


@pytest.mark.parametrize('name', ['table1', 'table3', 'table4', 'figure3'])
def test_rows_of_an_own_config_are_what_they_are_called(name):
    """Whatever broadcast, layers and place that config has: the plain row has none."""
    rows = ABLATIONS[name].rows
    differing = {key.rpartition('backbone.')[2] for row in rows for key in row.values}
    defaults = {'position': 'end', 'broadcast': None, 'layers': None}
    own = [
        *('model.backbone.layers=all', 'model.backbone.position=mid'),
        *('model.backbone.attention=uniform_c', 'model.backbone.extra_layer=mlp'),
    ]
    for row in rows:
        found = load_config(
            config_file('cifar10_vit_micro_cb'), [*own, *row_changes(name, row, own_config=True)]
        ).model.backbone
        wanted = load_config(config_file(row.recipe), row.options).model.backbone
        for key in sorted(differing):
            default = defaults.get(key)
            assert found.get(key, default) == wanted.get(key, default), (row.label, key)
        assert found.get('arch_changes') == wanted.get('arch_changes')


def test_names_of_metrics_are_text():
    """A config chooses them, by the prefix of a metric."""
    row = ablation.RowResult('SE', [], '1 epochs', {}, {'parameters': 1.0, '=a|b': None})
    report = ablation.AblationReport('table3', 'Table 3', '', [row])
    assert '| =a\\|b |' in report.markdown()
    assert "\n'=a|b" in report.csv().replace(',', '\n')


def test_runs_skips_and_resumes(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr('logging.raiseExceptions', False)  # mmengine keeps streams of other tests
    data = write_imagenet(tmp_path / 'data')
    options = dict(
        config=write_config(tmp_path, OWN), data_root=data, work_dir=tmp_path / 'work', epochs=2
    )
    report = run_ablation('table3', rows=['ViT-S', 'SE'], **options)
    assert [row.label for row in report.rows] == ['ViT-S', 'SE']
    assert report.rows[1].paper == {'top1': 80.3}
    assert report.rows[1].ours['parameters'] > report.rows[0].ours['parameters']
    assert '| SE | 80.3 |' in report.markdown()
    report.rows[1].paper['top1'] = 80.0  # with the paper's digits
    assert '| SE | 80.0 |' in report.markdown()
    assert json.loads((tmp_path / 'work' / 'table3.json').read_text())['rows'][0]['ours']
    assert (tmp_path / 'work' / 'table3.csv').read_text().startswith('model,')

    for row in report.rows:  # each has its own log, which says what the table says
        curves = read_curves(tmp_path / 'work' / row.label.lower().replace('-', '_')).values
        assert set(curves['loss']) == {1, 2}
        last = curves['validation/cross_entropy'][2]
        assert last == pytest.approx(row.ours['validation/cross_entropy'])

    # As if it had been killed in the second row, after its first epoch.
    (tmp_path / 'work' / 'se' / ablation.RESULT).unlink()
    (tmp_path / 'work' / 'se' / 'epoch_2.pth').unlink()
    started = []
    original = ablation.train

    def watched(*args, **kwargs):
        started.append((kwargs['work_dir'].name, kwargs['resume']))
        return original(*args, **kwargs)

    monkeypatch.setattr(ablation, 'train', watched)
    again = run_ablation('table3', rows=['ViT-S', 'SE'], **options)
    assert started == [('se', 'auto')]
    skipped = ('time', 'data_time')
    assert again.rows[0] == report.rows[0]
    assert {k: v for k, v in again.rows[1].ours.items() if k not in skipped} == {
        k: v for k, v in report.rows[1].ours.items() if k not in skipped
    }
    with pytest.raises(UserError, match='is of another run'):
        run_ablation('table3', rows=['SE'], **{**options, 'epochs': 3})
    with pytest.raises(UserError, match=r'is of another run \(seed was '):
        run_ablation('table3', rows=['SE'], **options, seed=7)
    with pytest.raises(UserError, match=r'is of another run \(options was .* config was '):
        run_ablation(
            'table3', rows=['SE'], **options, cfg_options=['train_dataloader.batch_size=3']
        )
    with pytest.raises(UserError, match='rows='):
        run_ablation('table3', rows=['SF'], **options)
    file = tmp_path / 'work' / 'se' / ablation.RESULT
    whole = file.read_text()
    for damaged in (
        whole[:200],
        '[]',
        '{"label": "SE"}',
        whole.replace('{\n "label"', '{\n "x"', 1),
    ):
        file.write_text(damaged)
        with pytest.raises(UserError, match=r'ablation_row\.json is damaged'):
            run_ablation('table3', rows=['SE'], **options)
