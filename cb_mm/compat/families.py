"""Which OpenMMLab family is installed: the maintained `onedl-*` distributions or the originals.

Both carry the same import names (mmengine, mmcv, mmseg, mmdet), so only the installed
distributions tell them apart. This module imports nothing but the standard library.
"""

from __future__ import annotations

from importlib import metadata

from ..version import __version__

#: family -> import name -> distributions that provide it (the first one is the one to install)
FAMILIES: dict[str, dict[str, tuple[str, ...]]] = {
    'onedl': {
        'mmengine': ('onedl-mmengine',),
        'mmcv': ('onedl-mmcv',),
        'mmseg': ('onedl-mmsegmentation',),
        'mmdet': ('onedl-mmdetection',),
    },
    'openmmlab': {
        'mmengine': ('mmengine', 'mmengine-lite'),
        'mmcv': ('mmcv-lite', 'mmcv'),
        'mmseg': ('mmsegmentation',),
        'mmdet': ('mmdet',),
    },
}

#: Distributions beside the families whose version may change a figure.
LIBRARIES = ('torch', 'timm', 'numpy', 'opencv-python', 'opencv-python-headless',
             'onedl-mmpretrain', 'mmpretrain')  # fmt: skip

INSTALL = {
    'onedl': 'pip install "cb_mm[onedl]"',
    'openmmlab': 'pip install "cb_mm[openmmlab]"',
}

NO_FAMILY = (
    'cb_mm needs mmengine, mmcv, mmsegmentation and mmdetection, but found none of them.\n'
    f'Install the maintained distributions:  {INSTALL["onedl"]}\n'
    f'or the original OpenMMLab releases:    {INSTALL["openmmlab"]}'
)


def installed_versions() -> dict[str, str]:
    """Return the version of every installed distribution, by its normalised name."""
    return {
        (dist.metadata['Name'] or '').lower().replace('_', '-'): dist.version
        for dist in metadata.distributions()
    }


def software_versions() -> dict[str, str]:
    """Return the versions of cb_mm, the installed family and libraries that affect figures."""
    installed = installed_versions()
    names = {name for parts in families_found(installed).values() for name in parts}
    names.update(name for name in LIBRARIES if name in installed)
    return {'cb_mm': __version__, **{name: installed[name] for name in sorted(names)}}


def families_found(installed: dict[str, str]) -> dict[str, dict[str, str]]:
    """Return, for each family that is at least partly installed, its distributions and versions."""
    found = {
        family: {
            name: installed[name] for names in parts.values() for name in names if name in installed
        }
        for family, parts in FAMILIES.items()
    }
    return {family: parts for family, parts in found.items() if parts}


def current_family() -> str | None:
    """Return the name of the installed family; None without one, 'both' if they overlap."""
    found = list(families_found(installed_versions()))
    return 'both' if len(found) > 1 else (found[0] if found else None)
