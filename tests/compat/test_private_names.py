"""A canary: every private name of another package that cb_mm uses, so that an upgrade names it."""

from __future__ import annotations

import ast
import importlib
import inspect
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parents[2] / 'cb_mm'

#: Where each name is defined: 'module', or 'module:Class'.
PRIVATE = {
    'mmdet.evaluation:CocoMetric': ['_coco_api'],
    'mmengine.config:Config': ['_dict_to_config_dict', '_get_cfg_path', '_merge_a_into_b'],
    'mmengine.dataset:InfiniteSampler': ['_indices_of_rank'],
    'mmengine.fileio:FileClient': ['_prefix_to_backends'],
    'mmengine.hooks:CheckpointHook': ['_save_best_checkpoint', '_save_checkpoint_with_step'],
    'mmengine.logging:MMLogger': ['_instance_dict'],
    'mmengine.logging:MessageHub': ['_instance_dict'],
    'mmengine.registry:DefaultScope': ['_instance_dict'],
    'mmengine.visualization:Visualizer': ['_instance_dict'],
    'mmengine.registry:Registry': ['_imported', '_locations'],
    'mmengine.runner:EpochBasedTrainLoop': ['_decide_current_val_interval'],
    'mmengine.runner:IterBasedTrainLoop': ['_decide_current_val_interval'],
    'mmengine.runner:Runner': [
        '_load_from', '_resume', '_test_loop', '_train_loop', '_val_loop',
    ],
    'mmengine.runner.checkpoint': ['_load_checkpoint_to_model'],
    'mmengine.runner.loops:_InfiniteDataloaderIterator': ['_iterator'],
    'mmengine.dataset:BaseDataset': ['_metainfo'],
    'mmpretrain.datasets:CIFAR10': ['_check_integrity'],
    'mmpretrain.models.heads:ClsHead': ['_get_loss'],
    'mmseg.models.decode_heads.decode_head:BaseDecodeHead': ['_transform_inputs'],
    'os': ['_exit'],
    'pycocotools.cocoeval:COCOeval': ['_paramsEval'],
    'timm.models._manipulate': ['group_with_matcher'],
    'timm.models.beit:Attention': ['_get_rel_pos_bias'],
    'timm.models.vision_transformer:VisionTransformer': ['_pos_embed'],
    'torch._inductor.cpp_builder': ['get_cpp_compiler'],
    'torch._ops:OpOverload': ['_schema'],
    'torch._subclasses.fake_tensor': ['FakeTensorMode'],
    'torch.utils._python_dispatch': ['TorchDispatchMode'],
    'torch.nn:Module': [
        '_buffers', '_forward_hooks', '_forward_pre_hooks', '_load_from_state_dict', '_metadata',
        '_modules', '_parameters',
    ],
    'torch.nn:MultiheadAttention': ['_qkv_same_embed_dim'],
    'torch.nn.modules.batchnorm': ['_BatchNorm'],
    'torch.utils.data:DataLoader': ['_iterator'],
}  # fmt: skip
#: mmcv's extension, which cb_mm supplies; kernels of torchvision, which tests of the ops call; a
#: function that the maintained mmengine alone has, and a product of oneDNN, which are looked for
#: before they are used.
ELSEWHERE = {
    '_ext', '_linear_pointwise', '_roi_align_backward', '_roi_pool_backward', '_safe_torch_load',
}  # fmt: skip
#: What is put on objects of others, because no hook, subclass or wrapper reaches the place: the
#: comments there say why.
PATCHED = {
    'datasets/samplers/replay.py': {'dataset.__getitems__'},
    'engine/hooks/finite_loss.py': {'wrapper.update_params'},
    'engine/hooks/sample_guard.py': {'dataset.__getitems__', 'loader.collate_fn'},
    'engine/hooks/stop_on_signal.py': {'loader.worker_init_fn', 'loop.run_iter'},
    'engine/hooks/replay.py': {'loop.dataloader_iterator'},
    'engine/endless_loader.py': {
        'loader._iterator', 'loop.dataloader_iterator', 'sampler.indices',
    },
}  # fmt: skip


@pytest.mark.parametrize('place', PRIVATE)
def test_the_private_names_are_still_there(place):
    module, _, name = place.partition(':')
    owner = importlib.import_module(module)
    owner = getattr(owner, name) if name else owner
    for used in PRIVATE[place]:
        in_source = name and re.search(rf'\b{used}\b', inspect.getsource(owner))
        assert hasattr(owner, used) or in_source, f'{place} no longer has {used}'


def test_no_other_private_name_is_used():
    listed = {name for names in PRIVATE.values() for name in names if name.startswith('_')}
    found = {name for file in PACKAGE.rglob('*.py') for name in _foreign(ast.parse(_text(file)))}
    assert found == listed | ELSEWHERE | {
        '_inductor', '_manipulate', '_python_dispatch', '_subclasses',
    }  # fmt: skip


def test_nothing_else_is_put_on_runners_loaders_and_data_sets():
    # Not the runner of engine/training.py, which is ours from the start, nor a config's wrapper.
    owners = {'runner', 'dataset', 'loader', 'dataloader', 'loop', 'sampler', 'wrapper'}
    found: dict[str, set[str]] = {}
    for file in PACKAGE.rglob('*.py'):
        for node in ast.walk(ast.parse(_text(file))):
            targets = node.targets if isinstance(node, ast.Assign) else []
            for target in targets:
                if (
                    isinstance(target, ast.Attribute)
                    and isinstance(target.value, ast.Name)
                    and target.value.id in owners
                ):
                    place = str(file.relative_to(PACKAGE))
                    found.setdefault(place, set()).add(ast.unparse(target))
    assert found.pop('engine/training.py') == {'runner.optim_wrapper'}
    assert found == PATCHED


def _text(file: Path) -> str:
    return file.read_text(encoding='utf-8')


def _private(name: object) -> bool:
    return isinstance(name, str) and bool(re.fullmatch(r'_(?!_)\w+', name))


def _foreign(tree: ast.Module) -> Iterator[str]:
    """Every private name that a file uses and does not define itself."""
    own = set()
    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            own.add(node.name)
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            if ast.unparse(node.value) == 'self':
                own.add(node.attr)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            own.add(node.id)
    overridden = {name for names in PRIVATE.values() for name in names}
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            yield from {node.attr} & overridden or {node.attr} - own if _private(node.attr) else ()
        elif isinstance(node, ast.FunctionDef):
            yield from {node.name} & overridden
        elif isinstance(node, ast.ImportFrom) and not node.level:
            names = [*(node.module or '').split('.'), *(item.name for item in node.names)]
            yield from (name for name in names if _private(name) and name != '_old_names')
        elif isinstance(node, ast.Call) and ast.unparse(node.func) in ('getattr', 'hasattr'):
            name = node.args[1].value if isinstance(node.args[1], ast.Constant) else None
            if _private(name) and name not in own:
                yield name
