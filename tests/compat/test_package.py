"""What `import cb_mm` does: registers everything, for both tasks, without loading either."""

from __future__ import annotations

import subprocess
import sys


def test_importing_registers_everything_and_loads_no_model_zoo(tmp_path):
    code = """
import sys
import cb_mm
assert 'mmseg.models' not in sys.modules and 'mmdet.models' not in sys.modules
from mmengine import registry
wanted = {
    'MODELS': ['ViTCB', 'FastUPerHead'],
    'TRANSFORMS': ['ImageCorruption'],
    'HOOKS': ['ReplayHook', 'MeanLossHook'],
    'DATA_SAMPLERS': ['ReplaySampler', 'ReplayInfiniteSampler'],
    'OPTIM_WRAPPERS': ['Bfloat16OptimWrapper'],
    'OPTIM_WRAPPER_CONSTRUCTORS': ['ViTLayerDecayConstructor'],
}
for scope in ('mmseg', 'mmdet'):
    for kind, names in wanted.items():
        root = getattr(registry, kind)
        for name in names:
            with root.switch_scope_and_registry(scope) as local:
                assert local.get(name) is not None, (scope, kind, name)
print(cb_mm.__version__)
"""
    command = [sys.executable, '-c', code]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, timeout=120)
    assert done.returncode == 0, done.stderr
    assert done.stdout == '0.2.0.dev0\n'  # nor does anything else print
