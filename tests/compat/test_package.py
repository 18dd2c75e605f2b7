"""What `import cb_mm` does: registers everything, for both tasks, without loading either."""

from __future__ import annotations

import subprocess
import sys


def test_importing_registers_everything_and_loads_no_model_zoo(tmp_path):
    code = """
import sys
import cb_mm
print(cb_mm.__version__)
assert 'mmseg.models' not in sys.modules and 'mmdet.models' not in sys.modules
import cb_mm.engine.training, cb_mm.robustness, cb_mm.datasets
# The guard looks at one flag of mmpretrain; its models stay out.
assert not {'cb_mm.evaluation.classification', 'mmpretrain.models'} & set(sys.modules)
from mmengine import registry
wanted = {
    'MODELS': ['ViTCB', 'FastUPerHead'],
    'TRANSFORMS': ['ImageCorruption'],
    'HOOKS': [
        'AttentionHook', 'CheckpointMatchHook', 'FiniteLossHook', 'MeanLossHook', 'ProvenanceHook',
        'ReplayHook', 'SafeCheckpointHook', 'SampleGuardHook', 'StartReportHook',
        'StopOnSignalHook',
    ],
    'DATA_SAMPLERS': ['ReplaySampler', 'ReplayInfiniteSampler'],
    'OPTIM_WRAPPERS': ['Bfloat16OptimWrapper', 'Float16CpuOptimWrapper'],
    'OPTIM_WRAPPER_CONSTRUCTORS': ['ViTLayerDecayConstructor'],
}
for scope in ('mmseg', 'mmdet'):
    for kind, names in wanted.items():
        root = getattr(registry, kind)
        for name in names:
            with root.switch_scope_and_registry(scope) as local:
                assert local.get(name) is not None, (scope, kind, name)
from mmseg.registry import MODELS
assert MODELS.get('FastUPerHead').__module__ == 'cb_mm.models.heads.fast_uper_head'
"""
    command = [sys.executable, '-c', code]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, timeout=300)
    assert done.returncode == 0, done.stderr
    # Nor does anything print; mmseg and mmdet do, when they are asked for a part.
    assert done.stdout.startswith('0.2.0.dev0\n')
