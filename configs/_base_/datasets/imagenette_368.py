"""Imagenette in squares of 368 pixels."""

_base_ = ['imagenette.py']

image_size = 368
resize = dict(type='Resize', scale=(image_size, image_size))
random_crop = dict(type='RandomResizedCrop', scale=image_size)
train_pipeline = [_base_.load, resize, random_crop, _base_.random_flip, _base_.pack]
test_pipeline = [_base_.load, resize, _base_.corruption_point, _base_.pack]
train_dataloader = dict(dataset=dict(pipeline=train_pipeline))
val_dataloader = dict(dataset=dict(pipeline=test_pipeline))
test_dataloader = val_dataloader
