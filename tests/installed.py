"""The package as strangers get it: a wheel, installed where no checkout can be seen."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import sysconfig
from dataclasses import dataclass
from pathlib import Path

from tool import REPO, environment

#: Runs several commands in one process: importing torch takes longer than most of them.
_JOB = """
import contextlib, io, json, sys
from cb_mm_cli.command import main
results = []
for words in json.loads(sys.argv[1]):
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            code = main(words)
        except SystemExit as stop:
            code = stop.code
    results.append((code, out.getvalue(), err.getvalue()))
import cb_mm
print(json.dumps([cb_mm.__file__, results]))
"""


@dataclass
class Installed:
    """An environment with the wheel in it."""

    folder: Path

    @property
    def command(self) -> str:
        """The console script."""
        return str(self.folder / 'bin' / 'cb-mm')

    def python(self, *words: object, cwd: Path) -> subprocess.CompletedProcess:
        """Run its Python, which sees the packages of this environment but not the checkout."""
        return self._run(self.folder / 'bin' / 'python', *words, cwd=cwd)

    def run(self, *words: object, cwd: Path) -> subprocess.CompletedProcess:
        """Run ``cb-mm`` as a user does."""
        return self._run(self.command, *words, cwd=cwd)

    def run_all(self, *commands: list, cwd: Path) -> list[tuple[int, str, str]]:
        """Run commands one after the other in one process: exit code, output, errors of each."""
        words = json.dumps([[str(word) for word in command] for command in commands])
        done = self.python('-c', _JOB, words, cwd=cwd)
        assert done.returncode == 0, done.stderr[-3000:]
        file, results = json.loads(done.stdout.splitlines()[-1])
        assert file.startswith(str(self.folder)), file
        return results

    def _run(self, *words: object, cwd: Path) -> subprocess.CompletedProcess:
        env = {key: value for key, value in environment().items() if key != 'PYTHONPATH'}
        return subprocess.run(
            [str(word) for word in words], cwd=cwd, env=env, capture_output=True, text=True,
            timeout=600,
        )  # fmt: skip


def install(folder: Path) -> Installed:
    """Build the wheel from a copy of the sources, and install it into a new environment."""
    sources = folder / 'sources'
    for name in ('cb_mm', 'cb_mm_cli', 'configs', 'tools', 'docs'):
        shutil.copytree(REPO / name, sources / name, ignore=shutil.ignore_patterns('__pycache__'))
    for name in ('pyproject.toml', 'setup.py', 'MANIFEST.in', 'README.md', 'LICENSE',
                 'model-index.yml'):  # fmt: skip
        shutil.copy(REPO / name, sources / name)
    pip = [sys.executable, '-m', 'pip', '--disable-pip-version-check']
    wheel = ['wheel', '--quiet', '--no-deps', '--no-build-isolation', '--wheel-dir', folder]
    subprocess.run([*pip, *map(str, wheel), '.'], cwd=sources, check=True, env=_without_path())
    (built,) = folder.glob('*.whl')
    shutil.rmtree(sources)
    new = folder / 'env'
    subprocess.run([sys.executable, '-m', 'venv', '--without-pip', str(new)], check=True)
    (packages,) = new.glob('lib/python*/site-packages')
    # A path in a .pth file is searched, but the .pth files there, an editable cb_mm among them, are
    # not read. The wheel's own folder comes first.
    (packages / 'packages_of_the_tests.pth').write_text(f'{sysconfig.get_paths()["purelib"]}\n')
    subprocess.run(
        [*pip, '--python', str(new / 'bin' / 'python'), 'install', '--quiet', '--no-deps',
         '--no-index', str(built)],
        check=True, env=_without_path(),
    )  # fmt: skip
    return Installed(new)


def _without_path() -> dict[str, str]:
    return {key: value for key, value in os.environ.items() if key != 'PYTHONPATH'}
