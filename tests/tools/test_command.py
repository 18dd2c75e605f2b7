"""``cb-mm`` from the built wheel, with no checkout in sight, and the recipes that come with it."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import timm
import torch
from mmengine.config import Config
from PIL import Image
from timm.data import create_transform
from tool import CONFIGS, REPO, SMALL_MASK_RCNN, config_file

from cb_mm.checkpoints.read import read_checkpoint
from cb_mm.config import recipes, restricted
from cb_mm.config.loading import load_config
from cb_mm.errors import UserError
from cb_mm.fileio.images import read_image
from cb_mm_cli import command


def test_help_imports_nothing_heavy():
    """It answers in well under a second because nothing of the library is loaded."""
    code = (
        'import sys; from cb_mm_cli.command import COMMANDS, main\n'
        'for name in COMMANDS:\n'
        '    try: main([name, "--help"])\n'
        '    except SystemExit as stop: assert not stop.code\n'
        'assert main(["--help"]) == 0\n'
        'heavy = {"cb_mm", "torch", "numpy", "mmengine", "yaml"} & set(sys.modules)\n'
        'assert not heavy, heavy\n'
    )
    done = subprocess.run([sys.executable, '-c', code], cwd=REPO, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    shown = re.findall(r'^usage: cb-mm ([\w-]+)', done.stdout, re.M)
    assert set(shown) - {'COMMAND'} == set(command.COMMANDS)
    assert 'tools/' not in done.stdout, 'examples name the command'


@pytest.mark.parametrize(
    ('words', 'code', 'message'),
    [
        ([], 2, ''),
        (['trian'], 2, 'Did you mean "train"?'),
        (['configs', 'copy', 'upernet_vit_x', 'my.py'], 2, 'Did you mean "upernet_vit_s"?'),
        (['configs', 'nothing'], 2, 'no recipe has "nothing" in its name'),
        (['train', 'upernet_vit_s_bc'], 2, 'Did you mean "upernet_vit_s_cb"?'),
        (['upstream', 'mmseg', 'nothing'], 2, 'mmseg has no tool nothing; it has: '),
    ],
)
def test_wrong_words(words, code, message, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with contextlib.suppress(SystemExit):  # argparse's way out, also with 2
        assert command.main(words) == code
    assert message in capsys.readouterr().err


def test_a_checkpoint_in_the_place_of_the_config(tmp_path):
    (tmp_path / 'a.pth').touch()
    with pytest.raises(UserError, match=r'a\.pth is not a config: .* The config comes first'):
        load_config(tmp_path / 'a.pth')


def test_the_recipes_of_a_folder(capsys):
    assert command.main(['configs', 'modern']) == 0
    shown = {line.split()[0] for line in capsys.readouterr().out.splitlines()[1:]}
    assert shown == {file.stem for file in (CONFIGS / 'modern').glob('*.py')} != set()


def test_every_recipe_has_a_line():
    found = {one.name: one for one in recipes.recipes()}
    leaves = [file for file in CONFIGS.rglob('*.py') if '_base_' not in file.parts]
    assert len(found) == len(leaves) > 30
    assert all(one.what for one in found.values())
    assert found['upernet_vit_s_cb'].paper == {'160k': 'mIoU 43.9', '40k': 'mIoU 41.9'}
    assert found['imagenet_vit_ti_cb'].paper['300e'].startswith('top-1 73.4')


def test_a_copy_is_the_recipe(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    recipe = load_config(config_file('upernet_vit_s_cb')).to_dict()
    for file, words in (('my.py', []), ('flat.py', ['--flat'])):
        assert command.main(['configs', 'copy', 'upernet_vit_s_cb', file, *words]) == 0
        assert load_config(file).to_dict() == recipe
    assert '_base_' not in (tmp_path / 'flat.py').read_text()
    assert command.main(['configs', 'copy', 'upernet_vit_s_cb', 'my.py']) == 2
    assert '--force' in capsys.readouterr().err


def test_a_config_of_ones_own_in_upstreams_tools(tmp_path, monkeypatch, capsys):
    """By a flat copy, or read as our tools read it: ignore_index reaches the same places."""
    monkeypatch.chdir(tmp_path)
    text = "_base_ = ['cb_mm::demo_upernet_vit_ti_cb.py']\nignore_index = {}\n"
    Path('own.py').write_text(text.format(200))
    expected = load_config('own.py').to_dict()
    assert expected['model']['decode_head']['ignore_index'] == 200
    assert command.main(['configs', 'copy', 'own.py', 'flat.py', '--flat']) == 0
    assert Config.fromfile('flat.py').to_dict() == expected
    assert command.main(['configs', 'copy', 'own.py', 'other.py']) == 2
    # A tool that reads a config, in place of mmseg's, and then fails in its own way.
    tool = tmp_path / 'mmseg' / '.mim' / 'tools' / 'train.py'
    tool.parent.mkdir(parents=True)
    tool.write_text(
        'import json, sys\nfrom mmengine.config import Config\n'
        'print(json.dumps(Config.fromfile(sys.argv[1]).to_dict(), sort_keys=True))\n'
        'sys.exit(3)\n'
    )
    spec = importlib.util.spec_from_file_location('mmseg', tmp_path / 'mmseg' / '__init__.py')
    monkeypatch.setattr(importlib.util, 'find_spec', lambda name: spec)
    before = Config.__dict__['fromfile']
    capsys.readouterr()
    with pytest.raises(SystemExit, match='3'):
        command.main(['upstream', 'mmseg', 'train', 'own.py'])
    assert json.loads(capsys.readouterr().out) == json.loads(json.dumps(expected))
    assert Config.__dict__['fromfile'] is before
    recipe = load_config('demo_upernet_vit_ti_cb').to_dict()
    with pytest.raises(SystemExit, match='3'):
        command.main(['upstream', 'mmseg', 'train', 'demo_upernet_vit_ti_cb'])
    assert json.loads(capsys.readouterr().out) == json.loads(json.dumps(recipe))
    for wrong, message in ((text.format(300), 'ignore_index is 300 in the config'),
                           ("_base_ = 'cb_mm::upernet.py'", 'has no such recipe')):  # fmt: skip
        Path('own.py').write_text(wrong)
        assert command.main(['upstream', 'mmseg', 'train', 'own.py']) == 2
        assert message in capsys.readouterr().err


def test_a_base_by_name(tmp_path):
    file = tmp_path / 'my.py'
    file.write_text("_base_ = ['cb_mm::imagenet_vit_ti_cb.py']\nmodel = dict(head=dict(a=1))\n")
    expected = load_config(config_file('imagenet_vit_ti_cb')).to_dict()
    expected['model']['head']['a'] = 1
    assert load_config(file).to_dict() == expected
    restricted.enable()
    try:
        assert load_config(file).to_dict() == expected
    finally:
        restricted.disable()
    file.write_text("_base_ = ['cb_mm::upernet_vit_s_bc.py']\n")
    with pytest.raises(UserError, match='Did you mean "upernet_vit_s_cb"'):
        load_config(file)
    file.write_text("_base_ = ['cb_mm::../pyproject.py']\n")
    with pytest.raises(UserError, match='has no such recipe'):
        load_config(file)


def test_a_base_in_upstreams_own_tools(tmp_path, monkeypatch, capsys):
    """mmengine alone: its own syntax finds a recipe, and says what docs/training.md quotes."""
    assert command.main(['configs', 'path']) == 0
    monkeypatch.setenv('CB_MM_CONFIGS', capsys.readouterr().out.strip())
    file = tmp_path / 'my.py'
    file.write_text("_base_ = ['{{$CB_MM_CONFIGS:}}/upernet_vit_s_cb.py']\n")
    expected = load_config(config_file('upernet_vit_s_cb')).to_dict()
    assert Config.fromfile(file).to_dict() == load_config(file).to_dict() == expected
    page = (REPO / 'docs' / 'training.md').read_text()
    for base, kind in (('upernet_vit_s_cb', ValueError), ('demo/demo_upernet_vit_ti_cb',
                                                          AssertionError)):  # fmt: skip
        file.write_text(f"_base_ = ['cb_mm::{base}.py']\n")
        with pytest.raises(kind) as caught:
            Config.fromfile(file)
        assert f'{kind.__name__}: {str(caught.value)[:49]}' in page


@pytest.mark.slow
def test_from_the_wheel(wheel, scenes, tmp_path):
    """A recipe by name, a copy of it, a base by name, in our tools and in mmseg's own."""
    shown = wheel.run('--help', cwd=tmp_path)
    assert shown.returncode == 0
    assert 'cb-mm train demo_upernet_vit_ti_cb' in shown.stdout
    (tmp_path / 'own.py').write_text(
        "_base_ = ['cb_mm::demo_upernet_vit_ti_cb.py']\n"
        'model = dict(backbone=dict(arch=dict(_delete_=True, embed_dim=48, depth=2, num_heads=3),\n'
        '    out_indices=(0, 0, 1, 1)), decode_head=dict(in_channels=[48] * 4),\n'
        '    auxiliary_head=dict(in_channels=48))\n'
        'train_dataloader = dict(batch_size=2, num_workers=0, persistent_workers=False)\n'
        f'data_root = {str(scenes.ade20k)!r}\n'
    )
    alone = ['val_dataloader.num_workers=0', 'val_dataloader.persistent_workers=False']
    at = ['--data-root', scenes.ade20k]
    image = sorted((scenes.ade20k / 'images' / 'validation').glob('*.jpg'))[0]
    work = tmp_path / 'ours' / 'iter_1.pth'
    root = [f'{split}_dataloader.dataset.data_root={scenes.ade20k}' for split in ('train', 'val')]
    results = wheel.run_all(
        ['configs', 'upernet'],
        ['configs', 'copy', 'demo_upernet_vit_ti_cb', 'flat.py', '--flat'],
        ['check-data', 'own.py', *at],
        ['train', 'own.py', *at, '--iters', 1, '--work-dir', 'ours', '--cfg-options', *alone],
        [
            'upstream',
            'mmseg',
            'train',
            'own.py',
            '--work-dir',
            'theirs',
            '--cfg-options',
            'train_cfg.max_iters=1',
            *alone,
            *root,
        ],
        [
            'test',
            'own.py',
            work,
            *at,
            '--limit',
            2,
            '--out',
            'tested',
            '--corruption',
            'fog=2',
            '--repeats',
            1,
            '--cfg-options',
            *(word.replace('val', 'test') for word in alone),
        ],
        ['attention', 'own.py', work, image, '--format', 'png', '--out', 'maps'],
        ['attention', 'measure', 'own.py', work, image, '--format', 'pdf', '--out', 'measured'],
        ['predict', 'own.py', work, image, '--corruption', 'fog=3', '--side-by-side'],
        ['share', 'push', 'own.py', work, 'shared', '--data', 'drawn scenes'],
        ['share', 'pull', 'shared', '--out', 'back'],
        ['predict', 'back/config.py', 'back/model.safetensors', image, '--out', 'again'],
        cwd=tmp_path,
    )
    for code, out, err in results:
        assert code in (0, None), (out[-2000:], err[-2000:])
    assert 'upernet_vit_s_cb' in results[0][1]
    for folder in ('ours', 'theirs'):
        assert (tmp_path / folder / 'iter_1.pth').exists()
    assert '1 iteration: the demo schedule scaled' in results[3][1]
    assert '| fog' in (tmp_path / 'tested' / 'results.md').read_text()
    assert (tmp_path / 'tested' / 'robustness.svg').is_file()
    assert list((tmp_path / 'maps').glob('*_heads_layer*.png'))
    assert (tmp_path / 'measured' / 'entropy_by_depth.pdf').is_file()
    assert 'drawn scenes' in (tmp_path / 'back' / 'README.md').read_text()
    ours, again = (
        read_image(tmp_path / folder / 'labels' / f'{image.stem}.png')
        for folder in ('predictions/clean', 'again')
    )
    assert (ours == again).all(), 'what was shared predicts the same'


OWN_MASKS = """
_base_ = ['cb_mm::demo_upernet_vit_ti_cb.py']
pipeline = [dict(type=name) for name in ('LoadImageFromFile', 'LoadAnnotations', 'PackSegInputs')]
mine = dict(
    _delete_=True, type='BaseSegDataset', data_root='mine', img_suffix='.png',
    seg_map_suffix='.png', metainfo=dict(classes=('ground', 'disc')), pipeline=pipeline,
    data_prefix=dict(img_path='images', seg_map_path='masks'),
)
train_dataloader = dict(dataset=mine)
val_dataloader = dict(dataset=mine)
test_dataloader = val_dataloader
model = dict(decode_head=dict(num_classes=2), auxiliary_head=dict(num_classes=2))
"""


@pytest.mark.slow
def test_detection_and_own_data_from_the_wheel(wheel, scenes, tmp_path):
    """A small Mask R-CNN, trained, tested and used; and masks of one's own with a stray label."""
    (tmp_path / 'objects.py').write_text(
        SMALL_MASK_RCNN.replace('{configs}/demo/', 'cb_mm::')
        + 'train_dataloader = dict(num_workers=0, persistent_workers=False)\n'
        'val_dataloader = dict(num_workers=0, persistent_workers=False)\n'
        'test_dataloader = val_dataloader\n'
    )
    for kind, value in (('images', 90), ('masks', 1)):
        (tmp_path / 'mine' / kind).mkdir(parents=True)
        pixels = np.full((24, 32, 3) if kind == 'images' else (24, 32), value, np.uint8)
        pixels[:2] = 200  # in the masks: no class has this number
        Image.fromarray(pixels).save(tmp_path / 'mine' / kind / 'a.png')
    (tmp_path / 'masks.py').write_text(OWN_MASKS)
    (tmp_path / 'masks_said.py').write_text(f'{OWN_MASKS}ignore_index = 200\n')
    at = ['--data-root', scenes.coco]
    trained = 'ours/epoch_1.pth'
    image = sorted((scenes.coco / 'val2017').glob('*.jpg'))[0]
    *done, stray, said = wheel.run_all(
        ['train', 'objects.py', *at, '--epochs', 1, '--work-dir', 'ours'],
        ['test', 'objects.py', trained, *at, '--limit', 2, '--out', 'tested', '--html',
         '--corruption', 'fog=2', '--repeats', 1],
        ['predict', 'objects.py', trained, image, '--score', 0, '--out', 'found'],
        ['check-data', 'objects.py', *at],
        ['check-data', 'masks.py'],
        ['check-data', 'masks_said.py'],
        cwd=tmp_path,
    )  # fmt: skip
    for code, out, err in (*done, said):
        assert code in (0, None), (out[-2000:], err[-2000:])
    assert stray[0], 'a label without a class'
    assert 'set ignore_index = 200 in the config' in stray[1] + stray[2]
    assert '| fog' in (tmp_path / 'tested' / 'results.md').read_text()
    assert '</html>' in (tmp_path / 'tested' / 'report.html').read_text()
    objects = json.loads((tmp_path / 'found' / 'predictions.json').read_text())
    assert {'bbox', 'segmentation'} <= set(objects['annotations'][0])
    assert (tmp_path / 'found' / 'overlays').is_dir()


@pytest.mark.slow
def test_public_weights_from_the_wheel(wheel, shared, tmp_path):
    """By the command: the classes of timm, image by image."""
    weights = shared / 'weights' / 'vit_tiny_patch16_224_in1k.safetensors'
    data = shared / 'data' / 'imagenet_val'
    if not data.is_dir():
        pytest.skip('needs the ImageNet images beside the repository')
    words = ['test', 'imagenet_vit_ti', weights, '--data-root', data, '--limit', 12, '--out', 'out']
    loader = ['test_dataloader.num_workers=0', 'test_dataloader.persistent_workers=False']
    done = wheel.run(*words, '--cfg-options', *loader, cwd=tmp_path)
    assert done.returncode == 0, done.stderr[-2000:]
    assert 'mean 127.5, 127.5, 127.5 and std 127.5' in done.stdout + done.stderr
    model = timm.create_model('vit_tiny_patch16_224').eval()
    model.load_state_dict(read_checkpoint(weights))
    transform = create_transform((3, 224, 224), interpolation='bicubic', crop_pct=224 / 256,
                                 mean=(0.5,) * 3, std=(0.5,) * 3)  # fmt: skip
    expected = {}
    for number, folder in enumerate(sorted((data / 'val').iterdir())[:12]):
        (file,) = folder.iterdir()
        with torch.no_grad():
            logits = model(transform(Image.open(file).convert('RGB'))[None])
        expected[file.name] = 100.0 * (int(logits.argmax()) == number)
    scores = (tmp_path / 'out' / 'scores' / 'clean.csv').read_text().splitlines()[1:]
    found = {Path(line.split(',')[0]).name: float(line.split(',')[1]) for line in scores}
    assert found == expected
