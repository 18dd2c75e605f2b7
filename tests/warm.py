"""What every tool imports sooner or later, imported once; see forked.py.

Two slow parts of mmengine that have nothing to do with faults are left out: the layout of the
config's text, and the report about compilers.
"""

import mmengine.config.config
import mmengine.runner.runner
import yapf.yapflib.yapf_api

for scope in ('mmseg', 'mmdet'):
    __import__(f'{scope}.utils', fromlist=['x']).register_all_modules(init_default_scope=False)


def _as_it_is(code: str, **_: object) -> tuple[str, bool]:
    return code, True


yapf.yapflib.yapf_api.FormatCode = _as_it_is
mmengine.config.config.FormatCode = _as_it_is
mmengine.runner.runner.collect_env = dict
