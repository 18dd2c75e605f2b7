"""tools/visualize_attention.py and tools/analyze_attention.py end to end."""

from __future__ import annotations

import csv
import json
import math
import re
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import forked
import numpy as np
import pytest
import torch
from mmengine.registry import MODELS, init_default_scope
from PIL import Image
from tool import SMALL_UPERNET, TOOLS, main_of, write_config

from cb_mm.attention import load_subject
from cb_mm.attention.maps import parse_query, read_maps
from cb_mm.checkpoints.provenance import KEY, Provenance
from cb_mm.compat import families as family
from cb_mm.config.loading import load_config, replace_sync_bn
from cb_mm.errors import UserError
from cb_mm.fileio.images import read_image

visualize = main_of('visualize_attention.py')
analyze = main_of('analyze_attention.py')


@pytest.fixture(scope='module')
def study(tmp_path_factory) -> SimpleNamespace:
    """Two small segmentors, without CB and with CB_S, their checkpoints, and three images."""
    folder = tmp_path_factory.mktemp('study')
    models = []
    for name, broadcast in (('plain', 'None'), ('scaled', "'cb_s'")):
        text = SMALL_UPERNET + f'\nmodel["backbone"]["broadcast"] = {broadcast}\n'
        config = write_config(folder, text, f'{name}.py')
        cfg = load_config(config)
        replace_sync_bn(cfg)
        init_default_scope(cfg.default_scope)
        torch.manual_seed(0)
        model = MODELS.build(cfg.model)
        for parameter in model.backbone.parameters():
            torch.nn.init.normal_(parameter, std=0.4)
        checkpoint = folder / f'{name}.pth'
        torch.save({'state_dict': model.state_dict(), 'meta': {}}, checkpoint)
        models.append((config, checkpoint))
    images = folder / 'images'
    images.mkdir()
    rng = np.random.default_rng(0)
    for number in range(3):
        pixels = rng.integers(0, 256, (40, 70, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(images / f'{number}.png')
    return SimpleNamespace(folder=folder, plain=models[0], scaled=models[1], images=images)


def test_visualize_compares_two_models(study, tmp_path):
    words = (*study.plain, study.images / '1.png', '--compare', *study.scaled)
    done = forked.run(
        'visualize_attention.py', *words, '--query', '30,20', '--threshold', '0.2', '--html',
        '--layers', '1', '-1', '--names', 'ViT', 'ViT + CB_S', '--out', 'out', cwd=tmp_path,
    )  # fmt: skip
    assert done.code == 0, done.err
    out = tmp_path / 'out'
    expected = {'1.json', '1.csv', '1.html'}
    expected |= {f'1_heads_layer{i}.{k}' for i in (1, 3) for k in ('png', 'svg')}
    expected |= {f'1_grid_{m}.{k}' for m in ('ViT', 'ViT___CB_S') for k in ('png', 'svg')}
    expected |= {f'1_overlay_{m}_layer{i}.png' for m in ('ViT', 'ViT___CB_S') for i in (1, 3)}
    assert {path.name for path in out.iterdir()} == expected
    assert {Path(line).name for line in done.out.splitlines() if 'out/' in line} == expected
    assert Image.open(out / '1_overlay_ViT_layer3.png').size == (70, 40)

    content = json.loads((out / '1.json').read_text())
    image = read_image(study.images / '1.png')
    for described, model in zip(content['models'], (study.plain, study.scaled), strict=True):
        subject = load_subject(*map(str, model))
        maps = read_maps(subject, image, parse_query('30,20'), (40, 70), [1, 3])
        assert [layer['index'] for layer in described['layers']] == [1, 3]
        for layer, real in zip(described['layers'], maps, strict=True):
            assert layer['grid'] == [3, 5]
            assert (layer['heads'], layer['prefix_tokens']) == ([0, 1, 2], ['cls'])
            np.testing.assert_allclose(layer['maps'], real.maps, rtol=1e-5, atol=1e-9)
            np.testing.assert_allclose(layer['entropy'], real.entropy, rtol=1e-5)
    assert content['models'][0]['layers'][1]['maps'] != content['models'][1]['layers'][1]['maps']
    with (out / '1.csv').open() as stream:
        rows = list(csv.DictReader(stream))
    assert len(rows) == 2 * 2 * 3
    assert float(rows[0]['bound']) == pytest.approx(math.log(16), rel=1e-6)
    top = np.array(content['models'][0]['layers'][0]['maps'][0])
    assert float(rows[0]['peak']) == top.max()
    assert top[int(rows[0]['peak_row']), int(rows[0]['peak_column'])] == top.max()


def test_visualize_by_default(study, tmp_path, capsys):
    twin = tmp_path / 'twin' / '1.png'
    twin.parent.mkdir()
    twin.write_bytes((study.images / '1.png').read_bytes())
    words = [*study.plain, study.images / '1.png', twin, '--format', 'pdf', '--out', tmp_path / 'o']
    assert visualize([str(word) for word in words]) == 0
    names = {path.name for path in (tmp_path / 'o').iterdir()}
    assert {'images_1_heads_layer3.pdf', 'twin_1_heads_layer3.pdf', 'twin_1_grid.pdf'} <= names
    assert len(names) == 2 * 5
    assert len(capsys.readouterr().out.strip().splitlines()) >= 10


def analyze_words(study, out: Path, *more: object) -> list[str]:
    words = (*study.plain, study.images, '--compare', *study.scaled, '--out', out, *more)
    return [str(word) for word in words]


@pytest.mark.slow
def test_analyze_compares_two_models(study, tmp_path, capsys):
    out = tmp_path / 'out'
    words = analyze_words(study, out, '--reference', '2.5', 'from elsewhere')
    assert analyze(words) == 0
    shown = capsys.readouterr().out
    assert 'plain: 3 images, bound 2.77 nats' in shown
    assert 'mean over layers' in shown
    names = {path.name for path in out.iterdir()}
    figures = {'entropy_by_depth', 'class_entropy_and_distance', 'sparsity_and_prefix_mass',
               'sinks_and_broadcast', 'scales_by_depth'}  # fmt: skip
    assert names == {'images.jsonl', 'summary.json', 'summary.csv'} | {
        f'{figure}.{kind}' for figure in figures for kind in ('png', 'svg')
    }
    assert 'from elsewhere' in (out / 'entropy_by_depth.svg').read_text()

    records = [json.loads(line) for line in (out / 'images.jsonl').read_text().splitlines()[1:]]
    assert len(records) == 2 * 3
    summary = json.loads((out / 'summary.json').read_text())
    plain, scaled = summary['models']
    assert (plain['name'], plain['images'], plain['grids']) == ('plain', 3, [[3, 5]])
    assert plain['scales'] == []
    assert [scale['layer'] for scale in scaled['scales']] == [0, 1, 2, 3]
    values = [r['layers'][2]['heads']['entropy'][1] for r in records if r['model'] == 'plain']
    assert plain['layers'][2]['heads']['entropy']['mean'][1] == pytest.approx(np.mean(values))
    assert 0 < plain['layers'][2]['all_heads']['entropy']['mean'] < plain['bound']
    with (out / 'summary.csv').open() as stream:
        rows = list(csv.DictReader(stream))
    row = next(r for r in rows if (r['model'], r['layer'], r['head'], r['measure'])
               == ('plain', '2', '1', 'entropy'))  # fmt: skip
    assert float(row['mean']) == pytest.approx(np.mean(values))
    assert float(row['low']) < float(row['mean']) < float(row['high'])

    # The same command measures nothing again; another one is not mixed in.
    before = (out / 'images.jsonl').read_bytes()
    (out / 'summary.json').unlink()
    assert analyze(words) == 0
    assert (out / 'images.jsonl').read_bytes() == before
    assert json.loads((out / 'summary.json').read_text()) == summary
    capsys.readouterr()
    assert analyze([*words, '--size', '32']) == 2
    assert 'different: size (None there, [32, 32] here)' in capsys.readouterr().err
    assert analyze([*words, '--size', '32', '--overwrite', '--limit', '2']) == 0
    summary = json.loads((out / 'summary.json').read_text())
    assert (summary['models'][0]['images'], summary['models'][0]['grids']) == (2, [[2, 2]])


def test_one_image_has_no_interval(study, tmp_path, capsys):
    words = [*study.plain, study.images, '--limit', '1', '--format', 'png', '--out', tmp_path]
    assert analyze([str(word) for word in words]) == 0
    (model,) = json.loads((tmp_path / 'summary.json').read_text())['models']
    entropy = model['layers'][0]['all_heads']['entropy']
    assert entropy['mean'] > 0
    assert entropy['half_width'] is None
    shown = capsys.readouterr().out
    assert 'plain: 1 image, bound' in shown
    assert not re.search('nan|±', shown)


def records_of(out: Path) -> list[dict]:
    return [json.loads(line) for line in (out / 'images.jsonl').read_text().splitlines()]


def test_other_images_weights_and_versions_are_not_mixed(study, tmp_path, capsys, monkeypatch):
    """The same paths and sizes are not enough."""
    images = tmp_path / 'images'
    shutil.copytree(study.images, images)
    config, checkpoint = tmp_path / 'plain.py', tmp_path / 'plain.pth'
    shutil.copy(study.plain[0], config)
    shutil.copy(study.plain[1], checkpoint)
    out = tmp_path / 'out'
    words = [str(w) for w in (config, checkpoint, images, '--format', 'png', '--out', out)]
    assert analyze(words) == 0
    before = (out / 'images.jsonl').read_bytes()

    def refused(*texts: str) -> None:
        assert analyze(words) == 2
        error = capsys.readouterr().err
        assert all(text in error for text in texts), error
        assert '--overwrite' in error
        assert (out / 'images.jsonl').read_bytes() == before

    image = images / '1.png'
    pixels, content = np.array(Image.open(image)), image.read_bytes()
    pixels[0, 0] ^= 1
    Image.fromarray(pixels).save(image)
    refused('images.jsonl, line 3: ', '1.png has changed since it was measured')
    image.write_bytes(content)

    state = torch.load(checkpoint, weights_only=True)
    state['state_dict']['backbone.cls_token'][0, 0, 0] += 1
    torch.save(state, checkpoint)
    refused('different: model plain (')
    shutil.copy(study.plain[1], checkpoint)

    config.write_text(config.read_text() + 'model["data_preprocessor"]["std"] = [50, 50, 50]\n')
    refused('different: model plain (')
    shutil.copy(study.plain[0], config)

    with monkeypatch.context() as patch:
        patch.setattr(family, '__version__', '9.9')
        refused('cb_mm (', 'there, 9.9 here)')
    assert analyze(words) == 0, 'touched and put back: nothing has changed'
    assert (out / 'images.jsonl').read_bytes() == before


def test_records_that_are_damaged_or_there_twice(study, tmp_path, capsys):
    words = [*study.plain, study.images, '--format', 'png', '--out', tmp_path]
    words = [str(word) for word in words]
    assert analyze(words) == 0
    header, *lines = records_of(tmp_path)
    summary = (tmp_path / 'summary.json').read_bytes()
    fewer = json.loads(json.dumps(lines[2]))
    fewer['layers'][0]['heads']['entropy'].pop()
    bad = {
        'repeats line 2': lines[0],
        'not of a model of this run': {**lines[2], 'model': 'other'},
        'different layers, heads': fewer,
        'layers is not a list': {**lines[2], 'layers': {}},
        'bound is missing': {k: v for k, v in lines[2].items() if k != 'bound'},
        'layers[0] is not an object': {**lines[2], 'layers': [1]},
        'not a record of this kind': {'image': 'x', 'model': 'plain'},
    }
    for message, line in bad.items():
        content = '\n'.join(map(json.dumps, [header, *lines[:2], line])) + '\n'
        (tmp_path / 'images.jsonl').write_text(content)
        capsys.readouterr()
        assert analyze(words) == 2, message
        error = capsys.readouterr().err
        assert 'images.jsonl, line 4: ' in error
        assert message in error
        assert (tmp_path / 'images.jsonl').read_text() == content
    whole = '\n'.join(map(json.dumps, [header, *lines])) + '\n'
    (tmp_path / 'images.jsonl').write_text(whole[:-30])
    assert analyze(words) == 0
    assert 'the last line of images.jsonl was cut off' in capsys.readouterr().err
    assert (tmp_path / 'summary.json').read_bytes() == summary


def test_analyze_passes_over_a_broken_image(study, tmp_path, capsys):
    images = tmp_path / 'images'
    images.mkdir()
    for number in range(3):
        (images / f'{number}.png').write_bytes((study.images / f'{number}.png').read_bytes())
    for name in ('1.png', '3.png'):
        (images / name).write_bytes((images / '1.png').read_bytes()[:900])
    words = [*study.plain, images, '--format', 'png', '--out', tmp_path / 'out']
    assert analyze([str(word) for word in words]) == 2
    error = capsys.readouterr().err
    assert '1.png is damaged' in error
    assert '3.png is damaged' in error
    assert 'all other images were measured' in error
    summary = json.loads((tmp_path / 'out' / 'summary.json').read_text())
    assert summary['models'][0]['images'] == 2
    assert len(summary['unread']) == 2


def test_a_backbone_that_stops_early(study, tmp_path, capsys):
    """Blocks behind the last output do not run: they have no attention to show."""
    text = study.plain[0].read_text() + '\nmodel["backbone"]["out_indices"] = (0, 1, 1, 2)\n'
    config = tmp_path / 'early.py'
    config.write_text(text)
    words = [str(config), str(study.plain[1]), str(study.images / '0.png'), '--out', str(tmp_path)]
    assert visualize(words) == 0
    assert (tmp_path / '0_heads_layer2.png').exists()
    assert visualize([*words, '--layers', '3']) == 2
    assert 'layer 3 does not exist: the model has the 3 attention layers' in capsys.readouterr().err


def bad_commands(study) -> dict[str, tuple[list[object], str]]:
    config, checkpoint = study.plain
    image = study.images / '0.png'
    return {
        'query outside': ([config, checkpoint, image, '--query', '70,5'], 'x goes from 0 to 69'),
        'query nonsense': ([config, checkpoint, image, '--query', 'middle'], 'neither cls, nor'),
        'layer': ([config, checkpoint, image, '--layers', '4'], 'has the 4 attention layers'),
        'head': ([config, checkpoint, image, '--heads', '0', '3'], 'head 3 does not exist'),
        'threshold': ([config, checkpoint, image, '--threshold', '2'], 'not between 0 and 1'),
        'no image': ([config, checkpoint, 'none.png'], 'image none.png does not exist'),
        'no config': (['none.py', checkpoint, image], 'config none.py does not exist'),
        'no model': (['vit_tinny_patch16_224', checkpoint, image], 'Did you mean "vit_tiny'),
        'no checkpoint': ([config, 'none.pth', image], 'checkpoint none.pth does not exist'),
        'checkpoint of another model': (
            [config, study.scaled[1], image],
            '4 tensors are unknown here (such as blocks.0.mlp.broadcast.scale',
        ),
        'no attention': (['resnet18', checkpoint, image], 'ResNet has no attention; it consists'),
        'windows': (
            ['swin_tiny_patch4_window7_224', checkpoint, image], 'it is 12 × WindowAttention',
        ),
        'device': ([config, checkpoint, image, '--device', 'abacus'], '--device abacus'),
    }  # fmt: skip


@pytest.mark.parametrize(
    'name',
    ['query outside', 'query nonsense', 'layer', 'head', 'threshold', 'no image', 'no config',
     'no model', 'no checkpoint', 'checkpoint of another model', 'no attention', 'windows',
     'device'],
)  # fmt: skip
def test_wrong_commands_are_explained(study, tmp_path, capsys, name):
    words, message = bad_commands(study)[name]
    assert visualize([*map(str, words), '--out', str(tmp_path)]) == 2
    captured = capsys.readouterr()
    assert message in captured.err
    assert captured.err.startswith('error: ')
    assert not list(tmp_path.iterdir())


def test_the_backbone_alone_or_the_whole_segmentor(study):
    alone = load_subject(*map(str, study.plain))
    whole = load_subject(*map(str, study.plain), whole=True)
    assert alone.segmentor is None
    assert whole.segmentor.backbone is whole.model
    assert whole.model.state_dict().keys() == alone.model.state_dict().keys()


def test_bare_weights_with_a_config(study, tmp_path):
    weights = torch.load(study.plain[1], weights_only=True)['state_dict']
    bare = {k.removeprefix('backbone.'): v for k, v in weights.items() if 'backbone' in k}
    torch.save(bare, tmp_path / 'bare.pth')
    with pytest.raises(UserError, match=r'no backbone\.\* weights .* give the name of its timm'):
        load_subject(str(study.plain[0]), str(tmp_path / 'bare.pth'))


@pytest.fixture
def recorded(study, tmp_path) -> Path:
    """The checkpoint of the plain model, with a record of another mean."""
    content = torch.load(study.plain[1], weights_only=True)
    cfg = load_config(study.plain[0])
    cfg.model.data_preprocessor.mean = [100.0] * 3
    init_default_scope(cfg.default_scope)
    replace_sync_bn(cfg)
    content['meta'] = {KEY: Provenance.of_model(MODELS.build(cfg.model)).to_meta()}
    torch.save(content, tmp_path / 'recorded.pth')
    return tmp_path / 'recorded.pth'


@pytest.mark.parametrize('tool', [visualize, analyze])
def test_the_checkpoints_normalization(study, recorded, tmp_path, capsys, tool):
    words = [study.plain[0], recorded, study.images / '0.png', '--format', 'png', '--out']
    words = [str(word) for word in words]
    assert tool([*words, str(tmp_path / 'b'), '--normalization', 'half']) == 2
    assert 'was trained with images of mean 100, 100, 100' in capsys.readouterr().err
    assert tool([*words, str(tmp_path / 'c'), '--normalization', 'imagnet']) == 2
    assert 'Did you mean "imagenet"' in capsys.readouterr().err


def test_images_are_normalised_as_in_training(study, recorded, tmp_path):
    """With weights that say so, and with a config that says the same: the same attention."""
    text = study.plain[0].read_text() + '\nmodel["data_preprocessor"]["mean"] = [100.0] * 3\n'
    same = load_subject(str(write_config(tmp_path, text, 'same.py')), str(recorded))
    followed = load_subject(str(study.plain[0]), str(recorded))
    by_name = load_subject(str(study.plain[0]), str(study.plain[1]), normalization='half')
    assert (followed.mean, followed.std) == (same.mean, same.std)
    assert followed.mean == (100.0,) * 3
    assert by_name.std == (127.5,) * 3
    image = read_image(study.images / '0.png')
    one, other, third = (
        read_maps(subject, image, parse_query('cls'), (40, 70), [0])[0].maps
        for subject in (followed, same, by_name)
    )
    np.testing.assert_array_equal(one, other)
    assert np.abs(one - third).max() > 1e-3


def test_another_broadcast_can_be_asked_for(study, recorded, tmp_path):
    text = study.plain[0].read_text() + '\nmodel["backbone"]["broadcast"] = "cb"\n'
    config = str(write_config(tmp_path, text, 'cb.py'))
    with pytest.raises(UserError, match='trained with no broadcast, but this model has cb'):
        load_subject(config, str(recorded), normalization='weights')
    load_subject(config, str(recorded), normalization='weights', allow_mismatch=True)


def test_a_timm_model_follows_the_record_of_its_weights(tmp_path):
    from cb_mm.models import ViTCB

    def subject(broadcast: str | None, **options):
        model = ViTCB('vit_tiny_patch16_224', broadcast=broadcast, pyramid=False)
        record = {**Provenance.of_model(model).to_meta(), 'mean': [1.0] * 3, 'std': [2.0] * 3}
        weights = {f'backbone.{key}': value for key, value in model.state_dict().items()}
        torch.save({'meta': {KEY: record}, 'state_dict': weights}, tmp_path / 'a.pth')
        return load_subject('vit_tiny_patch16_224', str(tmp_path / 'a.pth'), **options)

    found = subject(None)
    assert (found.mean, found.std) == ((1.0,) * 3, (2.0,) * 3)
    assert subject(None, normalization='half').mean == (127.5,) * 3
    with pytest.raises(UserError, match='trained with cb in layers 6-11'):
        subject('cb')


@pytest.mark.parametrize('name', ['visualize_attention', 'analyze_attention'])
def test_help_is_quick_and_teaches(name, capsys):
    code = f"""
import runpy, sys
sys.argv = ['{name}.py', '--help']
sys.path.insert(0, {str(TOOLS)!r})
try:
    runpy.run_path({str(TOOLS / name) + '.py'!r}, run_name='__main__')
except SystemExit as error:
    assert not error.code
assert not {{'torch', 'numpy', 'cb_mm'}} & set(sys.modules)
"""
    done = subprocess.run([sys.executable, '-c', code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert f'python tools/{name}.py configs/upernet_vit_s.py' in done.stdout


def test_real_weights_on_real_images(shared, tmp_path):
    """ImageNet's ViT-Ti on street scenes: dense attention, below its bound, far from uniform."""
    weights = shared / 'weights' / 'vit_tiny_patch16_224_in1k.safetensors'
    images = shared / 'data' / 'camvid' / 'images' / 'val'
    if not weights.is_file() or not images.is_dir():
        pytest.skip('needs the ViT-Ti weights and the street scenes')
    words = ['vit_tiny_patch16_224', weights, images, '--size', '224', '--limit', '4',
             '--format', 'png', '--out', tmp_path]  # fmt: skip
    assert analyze([str(word) for word in words]) == 0
    (model,) = json.loads((tmp_path / 'summary.json').read_text())['models']
    assert model['bound'] == pytest.approx(5.2832, abs=1e-4)
    assert len(model['layers']) == 12
    means = [layer['all_heads']['entropy']['mean'] for layer in model['layers']]
    assert all(1 < mean < 5.28 for mean in means)
    reaches = [layer['all_heads']['reach']['mean'] for layer in model['layers']]
    assert np.mean(reaches[-4:]) > 2 * np.mean(reaches[:3])  # from near to far, with depth
