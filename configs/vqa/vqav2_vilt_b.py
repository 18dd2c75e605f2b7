"""ViLT-B, fine-tuned on VQAv2: without a broadcast.

    python tools/train.py configs/vqa/vqav2_vilt_b.py --init VILT --data-root /data/vqav2

Accuracy, the paper's (Table 10): 71.28.
Measured by us: not yet.

VILT is the folder of the published ViLT (dandelin/vilt-b32-mlm on the Hugging Face Hub); without
--init it is downloaded. The paper's figure seems to be the server's, on test-dev: ViLT's own 71.26,
which it reproduces first, is.
"""

_base_ = [
    '../_base_/models/vilt_vqa.py',
    '../_base_/datasets/vqav2.py',
    '../_base_/schedules/vqav2_10e.py',
]
