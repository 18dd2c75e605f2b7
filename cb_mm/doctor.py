"""Say what is installed, whether it fits together, and how to fix it.

It runs where nothing else imports: without a family, or with two of them over each other.
"""

from __future__ import annotations

import argparse
import importlib
import json
import platform
import sys
from dataclasses import asdict, dataclass, field
from importlib import metadata

from packaging.requirements import Requirement
from packaging.version import Version

from .compat.families import FAMILIES, INSTALL, families_found, installed_versions
from .version import __version__


@dataclass
class Problem:
    """One thing that does not fit, and the command that fixes it."""

    what: str
    fix: str


@dataclass
class Diagnosis:
    """All findings of the doctor; ``problems`` is empty when everything fits."""

    cb_mm: str
    python: str
    family: str
    versions: dict[str, str]
    ops: str
    device: str
    problems: list[Problem] = field(default_factory=list)

    @property
    def fits(self) -> bool:
        """Whether there is nothing to fix."""
        return not self.problems


#: (distribution, versions, distribution, versions, why, command)
KNOWN_BAD = [
    ('mmcv', '>=2.2', 'mmdet', '<=3.3.0',
     'mmdet 3.3 refuses mmcv 2.2 when it is imported', 'pip install "mmcv-lite>=2.1,<2.2"'),
    ('mmcv-lite', '>=2.2', 'mmdet', '<=3.3.0',
     'mmdet 3.3 refuses mmcv 2.2 when it is imported', 'pip install "mmcv-lite>=2.1,<2.2"'),
    ('mmcv', '>=2.2', 'mmsegmentation', '<=1.2.2',
     'mmsegmentation 1.2 refuses mmcv 2.2 when it is imported',
     'pip install "mmcv-lite>=2.1,<2.2"'),
    ('mmcv-lite', '>=2.2', 'mmsegmentation', '<=1.2.2',
     'mmsegmentation 1.2 refuses mmcv 2.2 when it is imported',
     'pip install "mmcv-lite>=2.1,<2.2"'),
    ('mmcv', '>0', 'mmcv-lite', '>0',
     'mmcv and mmcv-lite write the same files over each other',
     'pip uninstall -y mmcv mmcv-lite && pip install "mmcv-lite>=2.1,<2.2"'),
    ('opencv-python', '>=5', 'numpy', '>0',
     'OpenCV 5 is not tested with any OpenMMLab release',
     'pip install "opencv-python<5" "opencv-python-headless<5"'),
    ('opencv-python', '<4.13', 'numpy', '>=2.3',
     'OpenCV before 4.13 is built for numpy before 2.3', 'pip install "numpy<2.3"'),
]  # fmt: skip

NEEDED = {'torch': '2.6', 'torchvision': '0.21', 'timm': '1.0.20', 'numpy': '2.0'}


def examine(
    installed: dict[str, str],
    torch_wanted_by_torchvision: str | None = None,
    import_errors: dict[str, str] | None = None,
) -> tuple[str, list[Problem]]:
    """Return the family's name ('none' and 'both' included) and what is wrong, from facts alone.

    Args:
        installed: Distribution name -> version.
        torch_wanted_by_torchvision: The specifier in torchvision's metadata, such as '==2.14.1'.
        import_errors: Module name -> message, for modules that are installed but do not import.
    """
    found = families_found(installed)
    family = 'both' if len(found) > 1 else next(iter(found), 'none')
    problems = _family_problems(found)
    for name, least in NEEDED.items():
        version = installed.get(name)
        if version is None or Version(version) < Version(least):
            have = f'{name} {version} is too old' if version else f'{name} is not installed'
            problems.append(Problem(f'{have}; cb_mm needs {name} >= {least}',
                                    f'pip install "{name}>={least}"'))  # fmt: skip
    torch_version = installed.get('torch')
    if torch_version and torch_wanted_by_torchvision:
        wanted = Requirement(f'torch{torch_wanted_by_torchvision}')
        if not wanted.specifier.contains(Version(torch_version).public, prereleases=True):
            problems.append(
                Problem(
                    f'torchvision {installed.get("torchvision")} is built for {wanted}, '
                    f'but torch is {torch_version}: torchvision will not import',
                    f'pip install "{wanted}"',
                )
            )
    for a, a_versions, b, b_versions, why, fix in KNOWN_BAD:
        if _matches(installed, a, a_versions) and _matches(installed, b, b_versions):
            problems.append(Problem(f'{a} {installed[a]} with {b} {installed[b]}: {why}', fix))
    twins = {installed.get(name) for name in ('opencv-python', 'opencv-python-headless')}
    if None not in twins and len(twins) == 2:
        wanted_version = installed['opencv-python']
        problems.append(
            Problem(
                'opencv-python and opencv-python-headless differ, and share their files',
                f'pip install --force-reinstall --no-deps opencv-python-headless=={wanted_version}',
            )
        )
    for module, message in (import_errors or {}).items():
        problems.append(Problem(f'{module} does not import: {message}', _import_fix(module)))
    # One command can fix several findings; each pair is reported once.
    return family, list({(p.what, p.fix): p for p in problems}.values())


def _matches(installed: dict[str, str], name: str, versions: str) -> bool:
    if name not in installed:
        return False
    return Requirement(f'{name}{versions}').specifier.contains(
        Version(installed[name]).base_version, prereleases=True
    )


def _family_problems(found: dict[str, dict[str, str]]) -> list[Problem]:
    if not found:
        return [Problem('no OpenMMLab family is installed', INSTALL['onedl'])]
    if len(found) > 1:
        every = ' '.join(name for parts in found.values() for name in parts)
        names = ' and '.join(', '.join(parts) for parts in found.values())
        return [
            Problem(
                f'both OpenMMLab families are installed over each other ({names})',
                f'pip uninstall -y {every} && {INSTALL["onedl"]}',
            )
        ]
    family, parts = next(iter(found.items()))
    missing = [
        module for module, names in FAMILIES[family].items() if not any(n in parts for n in names)
    ]
    if missing:
        return [
            Problem(f'{", ".join(missing)} of family {family} is not installed', INSTALL[family])
        ]
    return []


def _import_fix(module: str) -> str:
    return {
        'cv2': 'pip install --force-reinstall --no-deps opencv-python-headless',
        'torchvision': 'pip install --force-reinstall torch torchvision',
    }.get(module, f'pip install --force-reinstall --no-deps {module}')


def _import_errors(installed: dict[str, str]) -> dict[str, str]:
    """Import what is installed, and return the message of each import that fails."""
    errors = {}
    for distribution, module in (
        ('torch', 'torch'),
        ('torchvision', 'torchvision'),
        ('timm', 'timm'),
        ('opencv-python-headless', 'cv2'),
    ):
        if distribution in installed:
            try:
                importlib.import_module(module)
            except Exception as error:  # whatever stops it from importing is the finding
                errors[module] = f'{type(error).__name__}: {error}'.splitlines()[0]
    return errors


_STAND_IN = 'torchvision kernels (mmcv has no compiled extension, none is needed)'


def _ops(family: str) -> str:
    if family in ('none', 'both'):
        return 'unknown: needs exactly one family'
    try:
        importlib.import_module('mmcv._ext')
    except ImportError as error:
        if isinstance(error, ModuleNotFoundError) and error.name == 'mmcv._ext':
            return _STAND_IN
        return f'torchvision kernels (the compiled mmcv extension does not load: {error})'
    except Exception as error:
        return f'unknown: mmcv does not import ({error})'
    from .compat.mmcv_ops import source

    if source() == 'torchvision':  # importing cb_mm has put the stand-in there
        return _STAND_IN
    return 'compiled mmcv extension'


def _device() -> str:
    try:
        import torch
    except Exception:
        return 'unknown: torch does not import'
    if torch.cuda.is_available():
        names = [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())]
        return f'cuda ({", ".join(names)})'
    threads = torch.get_num_threads()
    return f'cpu ({threads} thread{"" if threads == 1 else "s"})'


def diagnose() -> Diagnosis:
    """Check the current environment."""
    installed = installed_versions()
    requires = metadata.requires('torchvision') or [] if 'torchvision' in installed else []
    torch_pin = next((r for r in map(Requirement, requires) if r.name == 'torch'), None)
    family, problems = examine(
        installed, str(torch_pin.specifier) if torch_pin else None, _import_errors(installed)
    )
    unusable = sys.modules[__package__].__dict__.get('_failure')
    if unusable and not problems:  # all is installed, and yet the package could not register
        cause = str(unusable.__cause__ or unusable).splitlines()[0]
        parts = families_found(installed)[family]
        again = ' '.join(f'{name}=={version}' for name, version in parts.items())
        fix = f'pip install --force-reinstall --no-deps {again}'
        problems = [Problem(f'cb_mm cannot be used: {cause}', fix)]
    shown = [*NEEDED, 'opencv-python', 'opencv-python-headless']
    shown += [name for parts in families_found(installed).values() for name in parts]
    return Diagnosis(
        cb_mm=__version__,
        python=platform.python_version(),
        family=family,
        versions={name: installed[name] for name in shown if name in installed},
        ops=_ops(family),
        device=_device(),
        problems=problems,
    )


def describe(diagnosis: Diagnosis) -> str:
    """Return the report as text; the last line is 'fits' or the command that fixes it."""
    rows = [
        ('cb_mm', diagnosis.cb_mm),
        ('python', diagnosis.python),
        ('family', diagnosis.family),
        *diagnosis.versions.items(),
        ('mmcv ops', diagnosis.ops),
        ('device', diagnosis.device),
    ]
    width = max(len(name) for name, _ in rows)
    lines = [f'{name:<{width}}  {value}' for name, value in rows]
    for problem in diagnosis.problems:
        lines += ['', f'problem: {problem.what}', f'run:     {problem.fix}']
    if diagnosis.fits:
        lines += ['', 'fits']
    return '\n'.join(lines)


def report(as_json: bool = False) -> int:
    """Print what is installed; 0 when everything fits, 1 when something must be fixed."""
    diagnosis = diagnose()
    if as_json:
        print(json.dumps({**asdict(diagnosis), 'fits': diagnosis.fits}, indent=2))
    else:
        print(describe(diagnosis))
    return 0 if diagnosis.fits else 1


def main(argv: list[str] | None = None) -> int:
    """Run the command line of ``python -m cb_mm.doctor``."""
    parser = argparse.ArgumentParser(
        prog='python -m cb_mm.doctor', description=__doc__, allow_abbrev=False
    )
    parser.add_argument('--json', action='store_true', help='print the report as JSON')
    return report(as_json=parser.parse_args(argv).json)


if __name__ == '__main__':
    sys.exit(main())
