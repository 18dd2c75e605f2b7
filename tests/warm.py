"""What every tool imports sooner or later, imported once; see forked.py.

Two slow parts of mmengine that have nothing to do with faults are left out: the layout of the
config's text, and the report about compilers.
"""

import gc
import importlib

import mmengine.config.config
import mmengine.runner.runner
import PIL.Image
import yapf.yapflib.yapf_api

import cb_mm.apis  # before mmdet, which needs the ops that it supplies

for name in (
    'cb_mm.models.heads.fast_uper_head', 'cb_mm_cli.test', 'cb_mm_cli.train',
    'matplotlib.backends.backend_agg', 'matplotlib.backends.backend_svg', 'multiprocessing.queues',
):  # fmt: skip
    importlib.import_module(name)
for scope in ('mmseg', 'mmdet'):
    importlib.import_module(f'{scope}.utils').register_all_modules(init_default_scope=False)
for name in cb_mm.apis.__all__:
    getattr(cb_mm.apis, name)
PIL.Image.preinit()


def _as_it_is(code: str, **_: object) -> tuple[str, bool]:
    return code, True


yapf.yapflib.yapf_api.FormatCode = _as_it_is
mmengine.config.config.FormatCode = _as_it_is
mmengine.runner.runner.collect_env = dict

# What is here stays: the runs need not look through it, as mmengine does for every data set.
gc.collect()
gc.freeze()
