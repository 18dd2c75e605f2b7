"""ViLT-B/32 with two linear layers on its pooled vector: one score per answer.

It starts from the published ViLT that was pre-trained on image and text, by its name on the Hugging
Face Hub or, with ``--init``, from a folder with its files. The vocabulary comes from there too.
"""

model = dict(
    type='ViltVQA',
    data_preprocessor=dict(
        type='ViltDataPreprocessor',
        mean=[127.5, 127.5, 127.5],
        std=[127.5, 127.5, 127.5],
        to_rgb=True,
        tokenizer=None,  # that of the weights
        max_words=40,
    ),
    backbone=dict(
        type='ViltCB',
        drop_rate=0.1,  # as in ViLT's code; the published config.json has 0
        init_cfg=dict(type='Pretrained', checkpoint='dandelin/vilt-b32-mlm'),
    ),
    head=dict(type='VQAHead', num_classes=3129),
)
