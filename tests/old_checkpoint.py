"""The recipe of ``old_format.pth``, a checkpoint that version 0.1 wrote.

Its record has the broadcast, its layers and position, mean and std: nothing of what is recorded
since. Such files must be tested, resumed, exported and looked at for as long as there are any.
"""

from __future__ import annotations

from pathlib import Path

from tool import SMALL_UPERNET

CHECKPOINT = Path(__file__).resolve().parent / 'old_format.pth'
#: Iterations that were done when it was written, of all.
DONE, ALL = 2, 4

CONFIG = (
    SMALL_UPERNET
    + """
model['backbone'].update(
    arch=dict(_delete_=True, embed_dim=8, depth=2, num_heads=2, patch_size=8),
    out_indices=(0, 0, 1, 1),
)
model['decode_head'].update(in_channels=[8] * 4, channels=4)
model['auxiliary_head'].update(in_channels=8, channels=4)
train_cfg = dict(max_iters=4, val_interval=4)
optim_wrapper = dict(optimizer=dict(_delete_=True, type='SGD', lr=0.01, weight_decay=0.0001))
"""
)
