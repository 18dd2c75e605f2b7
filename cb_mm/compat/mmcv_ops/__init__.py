"""mmcv's ops without its compiled extension, on torchvision's kernels and in plain PyTorch.

The extension (`mmcv._ext`) has no wheels for current torch on the package index, and without it
`mmcv.ops`, and so mmdet's models, cannot even be imported. When it cannot be imported, `install`
puts a stand-in in its place. An extension that imports is left alone.

mmcv's layers call the extension on every device, or on CUDA alone; the stand-in does not look at
the device. An op that it does not have raises an error that names it, when called.
"""

from .missing import MissingOp
from .stand_in import EXTENSION, OPS, install, source

__all__ = ['EXTENSION', 'OPS', 'MissingOp', 'install', 'source']
