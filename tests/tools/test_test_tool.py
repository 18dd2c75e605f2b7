"""tools/test.py end to end: real processes, kills, several processes, and every wrong word."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import forked
import pytest
import torch
from mmengine.config import Config
from mmengine.registry import MODELS, init_default_scope
from robustness_models import records, scores
from tool import TOOLS, main_of

PLAN = (
    *('--corruption', 'gaussian_noise=10', 'gaussian_blur=2', '--repeats', 3),
    *('--metrics', 'calibration', 'boundary'),
)


def main(words) -> int:
    """The tool in this process: starting Python and torch takes longer than the test."""
    return main_of('test.py')([str(word) for word in words])


@pytest.fixture(scope='module')
def undisturbed(seg, tmp_path_factory):
    """The plan, tested in one go in one process."""
    out = tmp_path_factory.mktemp('undisturbed') / 'out'
    assert main(seg.words(*PLAN, '--out', out)) == 0
    return out


def test_files_and_text(seg, undisturbed, capsys):
    assert main(seg.words(*PLAN, '--out', undisturbed)) == 0
    names = {'results.jsonl', 'results.json', 'results.csv', 'results.md', 'per_class.csv',
             'robustness.png', 'robustness.svg', 'scores', 'test.log', 'reliability.csv',
             'reliability.png', 'reliability.svg'}  # fmt: skip
    assert {file.name for file in undisturbed.iterdir()} == names
    text = capsys.readouterr().out
    for words in ('seg (demo) under corruption', '| Gaussian noise σ=10 | 3 |', 'not of training',
                  '5 of 5 passes, by an earlier run', str(undisturbed)):  # fmt: skip
        assert words in text
    assert 'per class results' in (undisturbed / 'test.log').read_text()
    assert 'per class results' not in text, "upstream's log stays in its file"


@pytest.mark.slow
def test_killed_and_run_again_equals_undisturbed(seg, undisturbed, tmp_path):
    out = tmp_path / 'out'
    process = forked.Forked('test.py', *seg.words(*PLAN, '--out', out), cwd=tmp_path)
    file = out / 'results.jsonl'  # the header and two passes
    assert forked.wait_for(lambda: file.exists() and file.read_bytes().count(b'\n') >= 3)
    process.kill()
    finished = file.read_bytes().rpartition(b'\n')[0].split(b'\n')
    assert 3 <= len(finished) < 6, 'killed too late to show anything'
    again = forked.run('test.py', *seg.words(*PLAN, '--out', out), cwd=tmp_path)
    assert again.code == 0, again.err
    assert f'{len(finished) - 1} of 5 passes, by an earlier run; resuming' in again.out
    assert file.read_bytes().split(b'\n')[: len(finished)] == finished, 'times and all'
    assert scores(out) == scores(undisturbed)


@pytest.mark.slow
@pytest.mark.parametrize('task', ['seg', 'det'])
def test_two_processes_give_the_same_figures(task, request, tmp_path):
    model = request.getfixturevalue(task)
    plan = ('--corruption', 'gaussian_noise=10', '--repeats', 2, '--fgsm', 2, '--limit', 3)
    if task == 'seg':
        plan += ('--metrics', 'calibration', 'boundary')
    assert main(model.words(*plan, '--out', tmp_path / 'one')) == 0
    two = forked.run_ranks('test.py', *model.words(*plan, '--out', tmp_path / 'two'), cwd=tmp_path)
    assert [rank.code for rank in two] == [0, 0], two
    assert scores(tmp_path / 'one') == scores(tmp_path / 'two')
    said = ''.join(rank.out for rank in two)
    assert said.count('[1/4] clean') == 1, 'one process speaks'
    before = (tmp_path / 'two' / 'results.jsonl').read_bytes()
    assert main(model.words(*plan, '--out', tmp_path / 'two')) == 0, 'one process may go on'
    assert (tmp_path / 'two' / 'results.jsonl').read_bytes() == before


@pytest.mark.slow
def test_refusal_with_two_processes_ends(seg, undisturbed, tmp_path):
    """Each by itself: torchrun, which would end the second, is not there."""
    done = forked.run_ranks('test.py', *seg.words('--out', undisturbed), cwd=tmp_path)
    assert 0 not in [rank.code for rank in done]
    said = ''.join(rank.err for rank in done)
    assert said.count('holds the results of another run') == 1
    assert 'Error: ' not in said.split('holds the results')[0]


@pytest.mark.slow
def test_half_precision_is_another_test(seg, tmp_path):
    """In a process of its own: on some machines AMX must be off before bfloat16 is used."""
    plan = ('--limit', 4, '--out', tmp_path / 'exact')
    assert main(seg.words(*plan, '--channels-last')) == 0
    assert main(seg.words(*plan)) == 0, 'the memory format does not matter'
    words = seg.words('--limit', 4, '--out', tmp_path / 'half', '--amp')
    done = forked.run('test.py', *words, cwd=tmp_path, env=forked.WITHOUT_AMX)
    assert done.code == 0, done.err
    exact, half = (
        records(tmp_path / name)['clean']['metrics']['mIoU'] for name in ('exact', 'half')
    )
    assert 0 < abs(exact - half) < 0.5, 'it is another number, and nearly the same'
    header = json.loads((tmp_path / 'half' / 'results.jsonl').read_text().splitlines()[0])
    assert header['identity']['amp'], 'results of both never meet in one file'


@pytest.mark.slow
def test_a_config_of_mmdet_that_names_label_maps_without_loading_them(shared, tmp_path, capsys):
    """mask2former_r50 as mmdet ships it, with random weights, on a real image, made small."""
    import mmdet

    folder = Path(mmdet.__file__).parent / '.mim' / 'configs' / 'mask2former'
    config = folder / 'mask2former_r50_8xb2-lsj-50e_coco.py'
    if not config.is_file():
        pytest.skip('mmdet is installed without its configs')
    init_default_scope('mmdet')
    built = Config.fromfile(config).model
    built.backbone.init_cfg = None
    torch.save({'state_dict': MODELS.build(built).state_dict()}, tmp_path / 'random.pth')
    words = [config, tmp_path / 'random.pth', '--data-root', shared / 'data' / 'coco_mini',
             '--limit', 1, '--out', tmp_path / 'out', '--cfg-options',
             'test_dataloader.num_workers=0', 'test_dataloader.persistent_workers=False',
             'test_dataloader.dataset.pipeline.1.scale=(96,64)']  # fmt: skip
    assert main(words) == 0, capsys.readouterr().err
    assert '| images | box AP' in capsys.readouterr().out


def test_plain_testing_without_options(seg, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(seg.words()) == 0
    (folder,) = (tmp_path / 'work_dirs' / 'seg_demo').iterdir()
    assert folder.name.startswith('test_clean_')
    assert list(records(folder)) == ['clean']
    assert '| images | mIoU ' in capsys.readouterr().out


def test_severities_and_mpc(seg, tmp_path, capsys):
    words = ('--corruption', 'gaussian_blur', 'fog', '--repeats', 1, '--limit', 2)
    assert main(seg.words(*words, '--out', tmp_path)) == 0
    text = capsys.readouterr().out
    assert '| mIoU at severity | 1 ' in text
    assert 'averaged over severities 1 to 5 and 2 corruptions' in text
    summary = json.loads((tmp_path / 'results.json').read_text())['summary']['mIoU']
    found = [r['metrics']['mIoU'] for r in records(tmp_path).values() if r['severity']]
    assert len(found) == 10
    assert summary['mpc'] == pytest.approx(sum(found) / 10)


WRONG = {
    ('--corruption', 'gausian_noise=5'): 'Did you mean "gaussian_noise"',
    ('--corruption', 'gaussian_noise=-1'): 'out of range',
    ('--corruption', 'gaussian_noise=x'): 'a number',
    ('--corruption', 'fog', '--severity', '9'): 'must be 1, 2, 3, 4 or 5',
    ('--severity', '3'): 'nothing to set',
    ('--suite', 'table8'): 'Did you mean "table9"',
    ('--fgsm', '-3'): 'grey levels',
    ('--repeats', '0'): '--repeats 0',
    ('--limit', '0'): '--limit 0',
    ('--cache-mb', '-1'): '--cache-mb -1',
    ('--compare', 'nowhere.json'): '--compare nowhere.json does not exist',
    ('--reference', 'nowhere.json'): '--reference nowhere.json does not exist',
    ('--detect', '0'): '--detect 0',
    ('--metrics', 'sharpness'): "--metrics: 'sharpness' is not known",
    ('--data-root', 'nowhere'): '--data-root nowhere is not a folder',
    ('--cfg-options', 'test_dataloader.bach_size=2'): 'Did you mean "batch_size"',
    ('--launcher', 'pytorch'): 'torchrun',
}


@pytest.mark.parametrize('words', WRONG, ids=' '.join)
def test_wrong_words_get_one_message(seg, words, tmp_path, capsys, monkeypatch):
    monkeypatch.delenv('RANK', raising=False)
    assert main(seg.words('--out', tmp_path / 'out', *words)) == 2
    printed = capsys.readouterr()
    assert printed.err.startswith('error: ')
    assert WRONG[words] in printed.err
    assert printed.err.count('\n') == 1
    assert not (tmp_path / 'out').exists()


def test_checkpoints_that_do_not_fit(seg, det, tmp_path, capsys):
    state = torch.load(seg.checkpoint, weights_only=True)['state_dict']
    files = {
        'gone.pth': (None, 'does not exist'),
        'empty.pth': (b'', 'empty'),
        'text.pth': (b'hello', 'not a torch checkpoint'),
        'wide.pth': ({**state, 'decode_head.conv_seg.bias': torch.zeros(3)}, 'other sizes'),
        'less.pth': ({k: v for k, v in state.items() if 'psp' not in k}, 'missing from it'),
        'more.pth': ({**state, 'neck.weight': torch.zeros(1)}, '1 tensors are unknown here'),
    }
    for name, (content, message) in files.items():
        file = tmp_path / name
        if isinstance(content, bytes):
            file.write_bytes(content)
        elif content is not None:
            torch.save(content, file)
        assert main(seg.words('--out', tmp_path / 'out', checkpoint=file)) == 2
        error = capsys.readouterr().err
        assert error.startswith(f'error: checkpoint {file} ')
        assert message in error
        assert error.count('\n') == 1
    assert main(seg.words('--out', tmp_path / 'out', checkpoint=det.checkpoint)) == 2
    error = capsys.readouterr().err
    assert 'decode_head' in error, 'examples of what is missing'
    assert 'rpn_head' in error or 'neck' in error, 'and of what is too much'
    wrapped = {'state_dict': {f'module.{k}': v for k, v in state.items()}}
    torch.save(wrapped, tmp_path / 'wrapped.pth')
    assert main(seg.words('--out', tmp_path / 'out', checkpoint=tmp_path / 'wrapped.pth')) == 0


def test_damaged_images(seg, tmp_path, capsys):
    data = tmp_path / 'data'
    shutil.copytree(seg.data, data)
    image = sorted((data / 'images' / 'validation').iterdir())[1]
    words = [seg.config, seg.checkpoint, '--data-root', data, '--out', tmp_path / 'out']
    for damage in (b'', b'no picture', image.read_bytes()[:200]):
        image.write_bytes(damage)
        assert main(words) == 2
        error = capsys.readouterr().err
        assert image.name in error
        assert 'Traceback' not in error


def test_missing_images(seg, det, tmp_path, capsys):
    data = tmp_path / 'coco'
    shutil.copytree(det.data, data)
    lost = sorted((data / 'val2017').iterdir())[1]
    lost.unlink()
    words = [det.config, det.checkpoint, '--data-root', data, '--out', tmp_path / 'out']
    assert main(words) == 2
    assert lost.name in capsys.readouterr().err

    data = tmp_path / 'ade20k'
    shutil.copytree(seg.data, data)
    folder = data / 'images' / 'validation'
    names = sorted(file.stem for file in folder.iterdir())
    (folder / f'{names[1]}.jpg').unlink()
    words = [seg.config, seg.checkpoint, '--data-root', data, '--out', tmp_path / 'out']
    # mmseg tests what is in the folder; all that can be done is to say so.
    assert main(words) == 0
    assert f'1 label map without an image, such as {data}/annotations' in capsys.readouterr().out
    (data / 'val.txt').write_text('\n'.join(names))
    words[-1] = tmp_path / 'listed'
    assert main([*words, '--cfg-options', 'test_dataloader.dataset.ann_file=val.txt']) == 2
    assert f'{names[1]}.jpg of the test data does not exist' in capsys.readouterr().err


def test_a_label_map_that_cannot_be_read(seg, tmp_path, capsys):
    data = tmp_path / 'data'
    shutil.copytree(seg.data, data)
    file = sorted((data / 'annotations' / 'validation').iterdir())[2]
    file.write_bytes(file.read_bytes()[:60])
    assert main([*seg.words('--out', tmp_path / 'out')[:3], str(data), '--out', tmp_path]) == 2
    error = capsys.readouterr().err
    assert file.name in error
    assert error.count('\n') <= 3


def test_compare_wants_results(seg, tmp_path, capsys):
    for text, message in (('{', 'is not a JSON'), ('{}', 'was not written by tools/test.py')):
        (tmp_path / 'other.json').write_text(text)
        assert main(seg.words('--out', tmp_path / 'o', '--compare', tmp_path / 'other.json')) == 2
        assert message in capsys.readouterr().err


def test_a_config_without_a_test(seg, tmp_path, capsys):
    config = tmp_path / 'bare.py'
    config.write_text(seg.config.read_text() + '\ntest_evaluator = None\n')
    assert main([config, seg.checkpoint, '--out', tmp_path / 'out']) == 2
    assert 'test_evaluator' in capsys.readouterr().err


def test_help_starts_without_torch():
    code = 'import sys; sys.argv = ["test.py", "--help"]; import runpy\n'
    code += f'sys.path.insert(0, {str(TOOLS)!r})\n'
    code += f'try: runpy.run_path({str(TOOLS / "test.py")!r}, run_name="__main__")\n'
    code += 'except SystemExit as e: assert e.code == 0\n'
    code += 'assert "torch" not in sys.modules and "numpy" not in sys.modules'
    done = subprocess.run(
        [shutil.sys.executable, '-c', code],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert '--suite' in done.stdout
