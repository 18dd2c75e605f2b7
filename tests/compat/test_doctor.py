"""The doctor: real runs, and faked lists of what is installed."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import cv2
import mmcv
import pytest

from cb_mm.compat.families import current_family
from cb_mm.doctor import Diagnosis, describe, examine, main

GROUND = {'torch': '2.14.1', 'torchvision': '0.29.1', 'timm': '1.0.30', 'numpy': '2.2.6'}
ONEDL = {
    'onedl-mmengine': '0.10.12', 'onedl-mmcv': '2.3.6',
    'onedl-mmsegmentation': '1.4.2', 'onedl-mmdetection': '3.5.1',
}  # fmt: skip
OPENMMLAB = {
    'mmengine': '0.10.7', 'mmcv-lite': '2.1.0', 'mmsegmentation': '1.2.2', 'mmdet': '3.3.0',
}  # fmt: skip


def test_this_environment_fits(tmp_path, capsys):
    command = [sys.executable, '-m', 'cb_mm.doctor']
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, timeout=300)
    assert done.returncode == 0, done.stdout
    assert done.stdout.rstrip().endswith('fits')
    assert current_family() in done.stdout
    assert main(['--json']) == 0
    report = json.loads(capsys.readouterr().out)
    assert report['fits'] is True
    assert report['problems'] == []
    assert report['family'] == current_family()
    compiled = list(Path(mmcv.__file__).parent.glob('_ext*'))
    assert report['ops'].startswith('compiled' if compiled else 'torchvision kernels')


@pytest.mark.parametrize('family', [ONEDL, OPENMMLAB])
def test_one_family_fits(family):
    name, problems = examine({**GROUND, **family}, '==2.14.1')
    assert name == ('onedl' if family is ONEDL else 'openmmlab')
    assert problems == []


def test_no_family():
    name, problems = examine(GROUND)
    assert name == 'none'
    assert problems[0].fix == 'pip install "cb_mm[onedl]"'


def test_both_families():
    name, problems = examine({**GROUND, **ONEDL, **OPENMMLAB})
    assert name == 'both'
    assert 'over each other' in problems[0].what
    assert problems[0].fix.startswith('pip uninstall -y onedl-mmengine')
    assert problems[0].fix.endswith('pip install "cb_mm[onedl]"')


def test_both_families_found_on_disk(tmp_path, monkeypatch, capsys):
    """Real metadata of the other family laid beside the one that is installed."""
    other = OPENMMLAB if current_family() == 'onedl' else ONEDL
    for name, version in other.items():
        folder = tmp_path / f'{name.replace("-", "_")}-{version}.dist-info'
        folder.mkdir()
        (folder / 'METADATA').write_text(
            f'Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n'
        )
    monkeypatch.syspath_prepend(tmp_path)
    assert main([]) == 1
    shown = capsys.readouterr().out
    assert 'over each other' in shown
    assert 'pip uninstall -y' in shown


@pytest.mark.parametrize(
    ('change', 'words', 'fix'),
    [
        ({'torch': '2.15.0'}, 'torchvision 0.29.1 is built for', 'pip install "torch==2.14.1"'),
        ({'mmcv-lite': '2.2.0'}, 'refuses mmcv 2.2', 'mmcv-lite>=2.1,<2.2'),
        ({'mmcv': '2.1.0'}, 'over each other', 'pip uninstall -y mmcv mmcv-lite'),
        ({'timm': '0.9.16'}, 'timm 0.9.16 is too old', 'timm>=1.0.20'),
        ({'opencv-python': '5.0.0.93'}, 'OpenCV 5', 'opencv-python<5'),
        (
            {'opencv-python': '4.12.0.88', 'opencv-python-headless': '4.11.0.86'},
            'share their files',
            'opencv-python-headless==4.12.0.88',
        ),
        ({'opencv-python': '4.12.0.88', 'numpy': '2.4.6'}, 'numpy before 2.3', 'numpy<2.3'),
    ],
)
def test_known_misfits(change, words, fix):
    _, problems = examine({**GROUND, **OPENMMLAB, **change}, '==2.14.1')
    assert any(words in p.what and fix in p.fix for p in problems), problems


def test_half_a_family():
    installed = {**GROUND, **ONEDL}
    del installed['onedl-mmdetection']
    _, problems = examine(installed)
    assert problems[0].what == 'mmdet of family onedl is not installed'


def test_a_module_that_does_not_import():
    errors = {'cv2': 'ImportError: libGL.so.1: cannot open shared object file'}
    _, problems = examine({**GROUND, **ONEDL}, import_errors=errors)
    text = describe(Diagnosis('0.1.0', '3.11', 'onedl', {}, 'torchvision', 'cpu', problems))
    assert 'libGL' in text
    assert text.splitlines()[-1].endswith('opencv-python-headless')
    assert 'fits' not in text.splitlines()


def without(*modules: str, then: str, cwd: Path) -> subprocess.CompletedProcess:
    """Run code where these modules cannot be imported."""
    absent = ', '.join(f'{name}=None' for name in modules)
    code = f'import sys; sys.modules.update({absent})\n{then}'
    command = [sys.executable, '-c', code]
    return subprocess.run(command, capture_output=True, text=True, cwd=cwd, timeout=300)


def test_importing_without_a_family_says_what_to_run(tmp_path):
    """The import warns; whatever is used of the package raises the same message."""
    use = 'import cb_mm\ntry: cb_mm.add_context_broadcast\nexcept ImportError as e: print(e)'
    done = without('mmengine', 'mmcv', then=use, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    for text in (done.stdout, done.stderr):
        assert 'pip install "cb_mm[onedl]"' in text
        assert 'python -m cb_mm.doctor' in text
    done = without('mmengine', 'mmcv', then='from cb_mm import remove_context_broadcast',
                   cwd=tmp_path)  # fmt: skip
    assert done.returncode == 1
    assert done.stderr.rstrip().endswith('it says what does not fit and how to fix it.')


@pytest.mark.parametrize('missing', ['mmengine', 'torch', 'torchvision'])
def test_the_doctor_starts_where_nothing_else_does(tmp_path, missing):
    run = "import runpy; sys.argv = ['doctor']; runpy.run_module('cb_mm.doctor', None, '__main__')"
    done = without(missing, then=run, cwd=tmp_path)
    assert done.stdout.startswith('cb_mm '), done.stderr[-2000:]
    assert 'Traceback' not in done.stderr


@pytest.mark.parametrize('missing', ['mmengine', 'torchvision'])
def test_the_command_where_cb_mm_cannot_be_used(tmp_path, missing):
    """The doctor says what is wrong; every other command ends with the reason, and no traceback."""
    run = (
        'from cb_mm_cli.command import main\n'
        'assert main(["doctor"]) == 1\n'
        'for words in (["train", "demo_upernet_vit_ti_cb"], ["test", "a.py", "a.pth"]):\n'
        '    assert main(words) == 2, words\n'
    )
    done = without(missing, then=run, cwd=tmp_path)
    assert done.returncode == 0, done.stderr[-2000:]
    assert 'problem: ' in done.stdout
    assert 'fits' not in done.stdout.splitlines()
    assert done.stdout.startswith('cb_mm ')
    assert 'Traceback' not in done.stderr
    assert 'Warning' not in done.stderr
    assert done.stderr.count('error: cb_mm cannot be used here: ') == 2
    assert done.stderr.count('python -m cb_mm.doctor') == 2


def test_opencv_needs_no_screen():
    """The cv2 that is really loaded must not be the twin that wants libGL."""
    lines = cv2.getBuildInformation().splitlines()
    gui = next(line for line in lines if line.strip().startswith('GUI:'))
    assert gui.split(':')[1].strip() == 'NONE'
