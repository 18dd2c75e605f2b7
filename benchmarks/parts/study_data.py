"""The data and weights of the study: where they are, and unpacked once."""

from __future__ import annotations

import shutil
import tarfile
from pathlib import Path

from cb_mm.errors import UserError
from cb_mm.fileio.folder_lock import FolderLock

DEIT = 'weights/deit_tiny_patch16_224_in1k.safetensors'
AUGREG = 'weights/vit_tiny_patch16_224_in1k.safetensors'


class StudyData:
    """Finds everything; archives are unpacked below the work folder.

    Args:
        shared: The folder with ``data`` and ``weights``.
        work: The work folder of the study.
    """

    def __init__(self, shared: Path, work: Path) -> None:
        self.shared, self.unpacked = shared.resolve(), work.resolve() / 'data'

    def file(self, name: str) -> Path:
        """Return a file or folder of the shared ones."""
        path = self.shared / name
        if not path.exists():
            raise UserError(f'there is no {path}. Pass the folder that has {name} with --shared.')
        return path

    def cifar10(self) -> Path:
        """Return the folder with CIFAR-10's ``train`` and ``test``."""
        return self._unpack('data/cifar10.tar.gz', 'cifar10')

    def imagenette(self) -> Path:
        """Return the folder with Imagenette's ``train`` and ``val``."""
        return self._unpack('data/imagenette.tar', 'imagenette') / 'imagenette'

    def prepare(self, questions: set[str]) -> None:
        """Unpack what these questions need, before runs start side by side."""
        if questions & {'cifar', 'heads'}:
            self.cifar10()
        if 'sparse' in questions:
            self.imagenette()

    def _unpack(self, archive: str, name: str) -> Path:
        folder = self.unpacked / name
        if not folder.is_dir():
            source, part = self.file(archive), self.unpacked / f'.{name}'
            lock = FolderLock(self.unpacked, '--work')
            shutil.rmtree(part, ignore_errors=True)
            with tarfile.open(source) as tar:
                tar.extractall(part, filter='data')
            part.rename(folder)
            lock.release()
        return folder
