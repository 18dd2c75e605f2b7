"""ViTCB in training, and in other people's configs."""

from __future__ import annotations

import copy
import os
import subprocess
import sys
from pathlib import Path

import forked
import pytest
import torch

from cb_mm.engine.acceleration import require_compiler
from cb_mm.errors import UserError
from cb_mm.models import ViTCB
from cb_mm.models.broadcast.context_broadcast import BROADCASTS

REPO = Path(__file__).resolve().parents[2]
SMALL = {'embed_dim': 48, 'depth': 4, 'num_heads': 3, 'patch_size': 16}


def images(*size: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*size, generator=torch.Generator().manual_seed(seed))


def small(**options) -> ViTCB:
    torch.manual_seed(0)
    options = {'arch': SMALL, 'out_indices': (0, 1, 2, 3), 'img_size': 64, **options}
    return ViTCB(**options)


def loss_of(maps) -> torch.Tensor:
    return sum(m.float().square().mean() for m in maps)


@pytest.mark.parametrize('kind', [None, *BROADCASTS])
def test_every_trainable_parameter_gets_a_gradient(kind):
    model = small(broadcast=kind, layers='all', position='mlp+attn', out_indices=(0, 1, 2, 2))
    loss_of(model(images(2, 3, 64, 80))).backward()
    for name, parameter in model.named_parameters():
        assert (parameter.grad is not None) == parameter.requires_grad, name
    still = {name.split('.')[0] for name, p in model.named_parameters() if not p.requires_grad}
    assert still == {'norm', 'blocks'}
    assert not any(p.requires_grad for p in model.blocks[3].parameters())


def test_recomputing_gives_the_same_gradients():
    grads = []
    for with_cp in (False, True):
        model = small(broadcast='cb_s', with_cp=with_cp, drop_path_rate=0.3).train()
        torch.manual_seed(7)
        loss_of(model(images(2, 3, 64, 64))).backward()
        grads.append({name: p.grad for name, p in model.named_parameters()})
    for name, grad in grads[0].items():
        if grad is not None:
            torch.testing.assert_close(grads[1][name], grad, msg=name)


def test_recomputing_runs_every_block_twice():
    model = small(with_cp=True).train()
    calls = []
    model.blocks[1].register_forward_pre_hook(lambda *_: calls.append(1))
    loss_of(model(images(1, 3, 64, 64))).backward()
    assert len(calls) == 2


AUTOCAST = """
import torch
from cb_mm.models import ViTCB

for kind in (None, 'cb', 'cb_s', 'cb_blend', 'cb_gate', 'cb_hybrid', 'se'):
    torch.manual_seed(0)
    model = ViTCB(dict(embed_dim=48, depth=4, num_heads=3), broadcast=kind, img_size=64,
                  out_indices=(0, 1, 2, 3))
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=1e-3)
    x, losses = torch.randn(2, 3, 64, 64), []
    for _ in range(5):
        with torch.autocast('cpu', dtype=torch.bfloat16):
            maps = model(x)
        loss = sum(m.float().square().mean() for m in maps)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert maps[0].dtype == torch.bfloat16, maps[0].dtype
    assert losses[-1] < losses[0], (kind, losses)
    exact = model.eval()(x)
    with torch.autocast('cpu', dtype=torch.bfloat16):
        near = model(x)
    for a, b in zip(exact, near):
        assert (a - b).norm() < 0.05 * a.norm(), (kind, (a - b).norm() / a.norm())
print('trained')
"""


def test_trains_under_autocast(tmp_path):
    # In a process of its own: some virtual machines announce AMX and then forbid it, and oneDNN's
    # bfloat16 kernels end the whole process there unless they are told to do without.
    done = forked.run('-c', AUTOCAST, cwd=tmp_path, env=forked.WITHOUT_AMX)
    assert done.out.strip() == 'trained', done.err[-3000:]


def compiler() -> str:
    """torch's own, or where there is no C++ compiler the one that only needs the graphs."""
    try:
        require_compiler()
    except UserError:
        return 'aot_eager'
    return 'inductor'


@pytest.mark.slow
def test_trains_when_compiled():
    options = {'broadcast': 'cb_s', 'layers': 'all', 'out_indices': (0,), 'pyramid': False}
    model = small(arch={**SMALL, 'depth': 1}, **options).train()
    torch.nn.init.normal_(model.blocks[0].mlp.broadcast.scale)
    twin = copy.deepcopy(model)
    x = images(2, 3, 64, 80)
    loss_of(torch.compile(model, fullgraph=True, backend=compiler())(x)).backward()
    loss_of(twin(x)).backward()
    for (name, a), (_, b) in zip(model.named_parameters(), twin.named_parameters(), strict=True):
        if a.requires_grad:
            torch.testing.assert_close(a.grad, b.grad, rtol=1e-3, atol=1e-5, msg=name)


def test_frozen_stages_stay_frozen():
    for stages, blocks in [(-1, 0), (0, 0), (2, 2), (4, 4)]:
        model = small(frozen_stages=stages, drop_path_rate=0.2, broadcast='cb_s').train()
        embeddings = [model.cls_token, model.pos_embed, *model.patch_embed.parameters()]
        assert all(p.requires_grad == (stages < 0) for p in embeddings)
        for i, block in enumerate(model.blocks):
            assert block.training == (i >= blocks)
            assert all(p.requires_grad == (i >= blocks) for p in block.parameters())
        assert model.pyramid.training
        loss_of(model(images(2, 3, 64, 64))).backward()
        assert model.eval() is model
        assert not model.pyramid.training


# --- in other people's configs ------------------------------------------------------------------

FROM_ELSEWHERE = """
import os, sys
import torch
from mmengine.config import Config
from mmengine.registry import init_default_scope

def build(kind):
    if kind == 'plain':
        from cb_mm.models import ViTCB
        backbone = ViTCB('tiny', broadcast='cb')
    else:
        cfg = Config.fromfile(kind + '.py')  # imports cb_mm, and nothing else does
        init_default_scope(kind)
        if kind == 'mmseg':
            import mmseg.models
            from mmseg.registry import MODELS
        else:
            import mmdet.models
            from mmdet.registry import MODELS
        model = MODELS.build(cfg.model).train()
        model.init_weights()
        backbone = model.backbone
        images = torch.zeros(2, 3, 96, 128)
        features = model.extract_feat(images)
        if kind == 'mmseg':
            from mmengine.structures import PixelData
            from mmseg.structures import SegDataSample
            sample = SegDataSample(gt_sem_seg=PixelData(data=torch.zeros(1, 96, 128).long()))
            sample.set_metainfo(dict(img_shape=(96, 128)))
            losses = model.loss(images, [sample] * 2)
        else:
            from mmdet.structures import DetDataSample
            from mmengine.structures import InstanceData
            sample = DetDataSample(metainfo=dict(img_shape=(96, 128), pad_shape=(96, 128),
                                                 scale_factor=(1, 1), batch_input_shape=(96, 128)))
            sample.gt_instances = InstanceData(bboxes=torch.tensor([[8., 8., 60., 60.]]),
                                               labels=torch.tensor([0]))
            losses = model.loss(images, [sample] * 2)
        total = sum(v.sum() if torch.is_tensor(v) else sum(w.sum() for w in v)
                    for k, v in losses.items() if 'loss' in k)
        total.backward()
        assert backbone.patch_embed.proj.weight.grad is not None
    print(type(backbone).__name__, backbone.broadcast_layers, backbone.out_strides)

for kind in sys.argv[1:]:  # each in a process that has imported neither cb_mm nor a model
    child = os.fork()
    if child == 0:
        build(kind)
        sys.stdout.flush()
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0, kind
"""

BACKBONE = (
    "backbone=dict(type='ViTCB', arch=dict(embed_dim=48, depth=4, num_heads=3), img_size=64, "
    "out_indices=(0, 1, 2, 3), broadcast='cb', layers='all', skip_out_layers={})"
)
MMSEG = """
custom_imports = dict(imports=['cb_mm'], allow_failed_imports=False)
model = dict(type='EncoderDecoder', {backbone},
    decode_head=dict(type='UPerHead', in_channels=[48] * 4, in_index=[0, 1, 2, 3], channels=16,
                     num_classes=5, norm_cfg=dict(type='BN'), pool_scales=(1, 2, 3, 6),
                     loss_decode=dict(type='CrossEntropyLoss')))
"""
MMDET = """
custom_imports = dict(imports=['cb_mm'], allow_failed_imports=False)
anchors = dict(type='AnchorGenerator', scales=[8], ratios=[1.0], strides=[4, 8, 16, 32, 64])
coder = dict(type='DeltaXYWHBBoxCoder')
model = dict(type='RPN', {backbone},
    neck=dict(type='FPN', in_channels=[48] * 4, out_channels=16, num_outs=5),
    rpn_head=dict(type='RPNHead', in_channels=16, feat_channels=16, anchor_generator=anchors,
                  bbox_coder=coder, loss_cls=dict(type='CrossEntropyLoss', use_sigmoid=True),
                  loss_bbox=dict(type='L1Loss')),
    train_cfg=dict(rpn=dict(
        assigner=dict(type='MaxIoUAssigner', pos_iou_thr=0.7, neg_iou_thr=0.3, min_pos_iou=0.3),
        sampler=dict(type='RandomSampler', num=16, pos_fraction=0.5, add_gt_as_proposals=False),
        allowed_border=-1, pos_weight=-1, debug=False)),
    test_cfg=dict(rpn=dict(nms_pre=9, max_per_img=9, nms=dict(type='nms', iou_threshold=0.7),
                           min_bbox_size=0)))
"""


def test_built_from_outside_the_repository(tmp_path):
    (tmp_path / 'mmseg.py').write_text(MMSEG.format(backbone=BACKBONE.format(False)))
    (tmp_path / 'mmdet.py').write_text(MMDET.format(backbone=BACKBONE.format(True)))
    (tmp_path / 'elsewhere').mkdir()
    script = tmp_path / 'elsewhere' / 'build.py'
    script.write_text(FROM_ELSEWHERE)
    done = subprocess.run(
        [sys.executable, str(script), 'plain', 'mmseg', 'mmdet'],
        cwd=tmp_path,
        env={**os.environ, 'PYTHONPATH': str(REPO)},
        capture_output=True,
        text=True,
        check=False,
        timeout=500,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    built = [line for line in done.stdout.splitlines() if line.startswith('ViTCB ')]
    layers = ((6, 7, 8, 9, 10, 11), (0, 1, 2, 3), ())
    assert built == [f'ViTCB {each} (4, 8, 16, 32)' for each in layers]
