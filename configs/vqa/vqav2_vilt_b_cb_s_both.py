"""ViLT-B + CB_S (both), fine-tuned on VQAv2: CB_S on image and text tokens together, in all layers.

    python tools/train.py configs/vqa/vqav2_vilt_b_cb_s_both.py --init VILT --data-root /data/vqav2

Accuracy, the paper's (Table 10): 71.42.
Measured by us: not yet.
"""

_base_ = ['vqav2_vilt_b.py']

model = dict(backbone=dict(broadcast='cb_s', tokens='both'))
