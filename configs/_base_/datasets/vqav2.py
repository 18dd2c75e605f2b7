"""VQAv2 in the layout of its release, prepared as ViLT does.

Short side 384, long side at most 639, both multiples of 32. Training: RandAugment with two
operations of magnitude 9 of 30, without inversion and cut-out. Our reading: ViLT's public code has
fine-tuning with and without RandAugment; its paper uses it.
"""

default_scope = 'mmengine'
dataset_type = 'VQAv2Dataset'
data_root = 'data/vqav2'

train_pipeline = [
    dict(type='LoadImageFromFile'),
    dict(type='ViltRandAugment', operations=2, magnitude=9),
    dict(type='ViltResize', shorter=384, patch=32),
    dict(type='PackVQAInputs'),
]
test_pipeline = [
    dict(type='LoadImageFromFile'),
    dict(type='ViltResize', shorter=384, patch=32),
    dict(type='PackVQAInputs'),
]
train_dataloader = dict(
    batch_size=32,  # × 8 GPUs = 256
    num_workers=8,
    persistent_workers=True,
    drop_last=True,
    sampler=dict(type='ReplaySampler', shuffle=True),
    dataset=dict(
        type=dataset_type,
        data_root=data_root,
        split='train2014',
        answers=None,  # built from the annotations; or a file
        min_count=9,
        answerable_only=True,
        pipeline=train_pipeline,
    ),
)
val_dataloader = dict(
    batch_size=32,
    num_workers=8,
    persistent_workers=True,
    sampler=dict(type='DefaultSampler', shuffle=False),
    dataset=dict(
        type=dataset_type,
        data_root=data_root,
        split='val2014',
        answers=None,
        min_count=9,
        pipeline=test_pipeline,
    ),
)
test_dataloader = val_dataloader
val_evaluator = dict(type='VQAv2Accuracy')
test_evaluator = val_evaluator

# tools/test.py --test-set NAME: the answers are not public, and go to the server as a file.
test_set = 'val2014'
test_sets = {
    'test-dev': dict(
        test_dataloader=dict(dataset=dict(split='test-dev2015')),
        test_evaluator=dict(out_file='vqav2_test-dev.json'),
    ),
    'test': dict(
        test_dataloader=dict(dataset=dict(split='test2015')),
        test_evaluator=dict(out_file='vqav2_test.json'),
    ),
}
