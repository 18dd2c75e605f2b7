"""Import paths from before the package had rooms still lead to the modules, and warn."""

import importlib
import sys
from pathlib import Path

import pytest

import cb_mm
from cb_mm import _old_names, datasets
from cb_mm.config import load_config

FOLDER = Path(_old_names.__file__).parent
STUBS = sorted(path for path in FOLDER.rglob('*.py') if path.name != '__init__.py')
#: What the docs named, and configs imported, before the rooms.
NAMED = {
    'cb_mm.weights': 'load_weights',
    'cb_mm.runner': 'train',
    'cb_mm.pretraining': 'LabelSetAccuracy',
    'cb_mm.config': 'load_config',
    'cb_mm.checkpoint': 'read_checkpoint',
    'cb_mm.provenance': 'check_exact',
    'cb_mm.replay': 'ReplayHook',
    'cb_mm.data': 'write_scenes',
    'cb_mm.data.check': 'require',
    'cb_mm.data.scene_classes': 'SCENE_CLASSES',
    'cb_mm.attention.pictures': 'read_image',
    'cb_mm.attention.statistics': 'measure',
    'cb_mm.models.context_broadcast': 'ContextBroadcast',
    'cb_mm.models.insertion': 'add_context_broadcast',
    'cb_mm.models.winograd': 'winograd_conv2d',
    'cb_mm.models.upsampled_loss': 'FastFCNHead',
    'cb_mm.models.upsampled_conv': 'conv_upsampled',
    'cb_mm.robustness.fgsm': 'fgsm',
}


def old_name(stub: Path) -> str:
    return '.'.join(['cb_mm', *stub.relative_to(FOLDER).with_suffix('').parts])


@pytest.mark.parametrize('stub', STUBS, ids=old_name)
def test_an_old_name_warns_and_is_the_module_at_its_new_place(stub, monkeypatch):
    old = old_name(stub)
    monkeypatch.delitem(sys.modules, old, raising=False)
    with pytest.warns(DeprecationWarning, match=f'^{old} is now cb_mm') as warned:
        module = importlib.import_module(old)
    said = next(str(warning.message) for warning in warned if old in str(warning.message))
    assert module is sys.modules[said.split(' is now ')[1].split(';')[0]]


@pytest.mark.parametrize(('old', 'attribute'), NAMED.items())
def test_what_the_docs_named_is_there(old, attribute):
    module = importlib.import_module(old)
    assert hasattr(module, attribute)


def test_the_old_package_of_data_hands_over_the_names_of_datasets(monkeypatch):
    monkeypatch.delitem(sys.modules, 'cb_mm.data', raising=False)
    with pytest.warns(DeprecationWarning, match=r'cb_mm\.data is now cb_mm\.datasets'):
        data = importlib.import_module('cb_mm.data')
    assert all(getattr(data, name) is getattr(datasets, name) for name in datasets.__all__)


@pytest.mark.parametrize(
    ('module', 'old', 'new'),
    [
        ('cb_mm.corruption', 'find', 'find_corruption'),
        ('cb_mm.datasets', 'require', 'require_valid'),
    ],
)
def test_a_renamed_function_works_under_its_old_name(module, old, new):
    room = importlib.import_module(module)
    with pytest.warns(DeprecationWarning, match=f'^{module}.{old} is now {module}.{new};'):
        assert getattr(room, old) is getattr(room, new)
    with pytest.raises(AttributeError, match='no_such_name'):
        _ = room.no_such_name


def test_a_class_that_moved_is_found_where_an_example_imported_it():
    module = importlib.import_module('cb_mm.attention.analysis')
    with pytest.warns(DeprecationWarning, match=r'is now cb_mm\.attention\.options\.ModelChoice;'):
        found = module.ModelChoice
    assert found is importlib.import_module('cb_mm.attention.options').ModelChoice


def test_a_config_that_imports_an_old_name_still_loads(tmp_path, monkeypatch):
    monkeypatch.delitem(sys.modules, 'cb_mm.pretraining', raising=False)
    config = tmp_path / 'mine.py'
    config.write_text("custom_imports = dict(imports=['cb_mm', 'cb_mm.pretraining'])\n")
    with pytest.warns(DeprecationWarning, match=r'cb_mm\.evaluation\.classification'):
        load_config(config)


def test_rooms_come_before_old_names():
    """Old names are looked for last: a room must never be taken from their folder."""
    assert cb_mm.__path__[-1] == str(FOLDER)
    assert Path(cb_mm.models.__file__).parent.parent == Path(cb_mm.__file__).parent
