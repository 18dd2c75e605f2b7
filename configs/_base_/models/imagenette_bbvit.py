"""BBViT: the ViT with BigBird's attention, as its code has it.

Runs of 10 tokens, class token included. Each attends to itself and its two neighbours, to three
random runs of every head, redrawn in every forward pass of training, and to the first and the
last run, which attend to all. Queries, keys and values have biases; there is no output projection,
and no dropout in the attention.
"""

_base_ = ['imagenette_vit.py']

model = dict(
    backbone=dict(
        arch=dict(qkv_bias=True, attn_drop_rate=0.0),
        attention=dict(
            random=3,
            window=3,
            global_tokens=0,
            global_ends=True,
            block=10,
            layout='sequence',
            prefix_in_blocks=True,
            per_head=True,
            redraw=True,
            projection=False,
            queries='R+W+G',  # all
        ),
    )
)
