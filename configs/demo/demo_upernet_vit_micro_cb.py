"""Scaled-down UperNet recipe on the embedded scenes, from the published ViT-micro + CB, for a CPU.

    python tools/make_scenes.py demo_out/scenes
    python tools/train.py configs/demo/demo_upernet_vit_micro_cb.py --init WEIGHTS

What `make demo` trains; WEIGHTS are cb_mm/vit_micro_cifar10_cb. The backbone was pre-trained with
CB on CIFAR-10, at 32² with patches of 4; here it reads images of 128 × 96, so that objects have
about the size of those it knows. Takes a few minutes on two cores. It shows that everything works
together and measures nothing else.
"""

_base_ = ['demo_upernet_vit_ti_cb.py']

crop_size = (72, 72)
scale = (128, 96)

width = 96
model = dict(
    data_preprocessor=dict(
        mean=[125.307, 122.961, 113.858], std=[62.993, 62.089, 66.705], size=crop_size
    ),
    backbone=dict(
        arch=dict(_delete_=True, patch_size=4, embed_dim=width, depth=8, num_heads=3),
        img_size=crop_size,
        out_indices=(2, 3, 4, 7),
        pyramid=(2, 1, 0.5, 0.5),
    ),
    decode_head=dict(in_channels=[width, width, width, width]),
    auxiliary_head=dict(in_channels=width),
)
train_pipeline = _base_.train_pipeline
train_pipeline[2].update(scale=scale)
train_pipeline[3].update(crop_size=crop_size)
test_pipeline = _base_.test_pipeline
test_pipeline[1].update(scale=scale)
train_dataloader = dict(dataset=dict(pipeline=train_pipeline))
val_dataloader = dict(dataset=dict(pipeline=test_pipeline))
test_dataloader = val_dataloader

optim_wrapper = dict(optimizer=dict(lr=1e-3))
