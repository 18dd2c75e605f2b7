"""Everything is declared in pyproject.toml; this adds to the package what ``mim`` looks for."""

import shutil
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py

FOR_MIM = ('configs', 'tools', 'docs/model_zoo.md', 'model-index.yml')


class BuildWithMim(build_py):
    """Copies configs, tools and the model index into ``cb_mm/.mim`` of the built package.

    An editable install builds nothing: there they are in the checkout.
    """

    def run(self) -> None:
        """Build as usual, then copy."""
        super().run()
        if self.editable_mode:
            return
        target = Path(self.build_lib, 'cb_mm', '.mim')
        shutil.rmtree(target, ignore_errors=True)  # an earlier build may have left other files
        for name in FOR_MIM:
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            if Path(name).is_dir():
                no_cache = shutil.ignore_patterns('__pycache__')
                shutil.copytree(name, target / name, ignore=no_cache)
            else:
                shutil.copy2(name, target / name)


setup(cmdclass={'build_py': BuildWithMim})
