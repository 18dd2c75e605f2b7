"""ViLT-B + CB_S (text), fine-tuned on VQAv2: CB_S on the text tokens of all layers.

    python tools/train.py configs/vqa/vqav2_vilt_b_cb_s_text.py --init VILT --data-root /data/vqav2

Accuracy, the paper's (Table 10): 71.46.
Measured by us: not yet.
"""

_base_ = ['vqav2_vilt_b.py']

model = dict(backbone=dict(broadcast='cb_s', tokens='text'))
