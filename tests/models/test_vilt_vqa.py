"""ViLT for visual question answering: Hugging Face's model, trained, resumed and tested."""

from __future__ import annotations

from pathlib import Path

import pytest
import tiny_vqa
import torch
from mmengine.optim import build_optim_wrapper
from mmengine.registry import MODELS, init_default_scope
from mmengine.structures import BaseDataElement
from tool import CONFIGS

from cb_mm import apis
from cb_mm.config.loading import load_config
from cb_mm.errors import UserError

transformers = pytest.importorskip('transformers')

KINDS = {'': None, '_cb_s_image': 'image', '_cb_s_text': 'text', '_cb_s_both': 'both'}


def config_file(kind: str) -> Path:
    return CONFIGS / 'vqa' / f'vqav2_vilt_b{kind}.py'


@pytest.fixture(scope='module')
def folders(tmp_path_factory) -> tuple[Path, Path]:
    """A published ViLT and a VQA folder."""
    root = tmp_path_factory.mktemp('vqa')
    return tiny_vqa.write_vilt(root / 'vilt'), tiny_vqa.write_vqa(root / 'data')


def build(kind: str = '', *options: str) -> torch.nn.Module:
    config = load_config(config_file(kind), [*tiny_vqa.small_step(), *options])
    init_default_scope('mmengine')
    torch.manual_seed(0)
    return MODELS.build(config.model).eval()


def batch() -> dict:
    """Two images of different size, two questions of different length."""
    rng = torch.Generator().manual_seed(0)
    sizes = [(64, 96), (64, 64)]
    images = [torch.randint(0, 256, (3, *size), generator=rng, dtype=torch.uint8) for size in sizes]
    asked = [('what is this ?', [0], [1.0]), ('many', [1, 2], [0.6, 0.3])]
    samples = [
        BaseDataElement(metainfo=dict(
            question=text, answer_labels=labels, answer_scores=scores, question_id=1
        ))
        for text, labels, scores in asked
    ]  # fmt: skip
    return dict(inputs=images, data_samples=samples)


def test_it_is_hugging_faces_model(folders):
    """The same weights give the same scores and the same loss."""
    vilt, _ = folders
    model = build('', f'model.backbone.init_cfg.checkpoint={vilt}')
    model.init_weights()
    report = model.backbone.weights_report
    assert report.loaded == report.total == len(model.backbone.vilt.state_dict())
    published = transformers.ViltForMaskedLM.from_pretrained(vilt).vilt.state_dict()
    own = model.backbone.vilt.state_dict()
    assert all(torch.equal(own[name], value) for name, value in published.items())
    theirs = transformers.ViltForQuestionAnswering(
        transformers.ViltConfig(**tiny_vqa.ARCH, num_labels=3)
    ).eval()
    theirs.vilt.load_state_dict(own)
    theirs.classifier.load_state_dict(model.head.classifier.state_dict())
    data = model.data_preprocessor(batch())
    inputs = data['inputs']
    assert inputs['input_ids'].shape == (2, tiny_vqa.ARCH['max_position_embeddings'])
    assert inputs['attention_mask'].sum(1).tolist() == [6, 3]
    assert inputs['pixel_values'].shape == (2, 3, 64, 96)
    assert inputs['pixel_mask'].sum((1, 2)).tolist() == [64 * 96, 64 * 64]
    first = (batch()['inputs'][0].float() - 127.5) / 127.5
    assert torch.equal(inputs['pixel_values'][0], first.flip(0))  # BGR becomes RGB
    labels = torch.tensor([[1.0, 0, 0], [0, 0.6, 0.3]])
    with torch.no_grad():
        expected = theirs(**inputs, labels=labels)
        torch.testing.assert_close(model(**data), expected.logits)
        loss = model(**data, mode='loss')['loss_vqa']
    torch.testing.assert_close(loss, expected.loss)


def test_the_shares_of_answers_stay_exact_under_autocast():
    """In bfloat16, 0.3 would be 0.30078."""
    scores = torch.zeros(2, 3, dtype=torch.bfloat16)
    targets = build()._targets(batch()['data_samples'], scores)
    assert torch.equal(targets, torch.tensor([[1.0, 0, 0], [0, 0.6, 0.3]]))


@pytest.mark.parametrize('kind', KINDS)
def test_configs(kind):
    model = build(kind, 'model.backbone.scale_init=0.5')
    tokens = KINDS[kind]
    assert model.backbone.tokens == tokens
    assert model.backbone.vilt.config.hidden_dropout_prob == 0.1
    assert model.backbone.broadcast_layers == ((0, 1) if tokens else ())
    config = load_config(config_file(kind))
    assert config.train_dataloader.batch_size * 8 == config.auto_scale_lr.base_batch_size == 256
    wrapper = build_optim_wrapper(model, config.optim_wrapper)
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    for group in wrapper.optimizer.param_groups:
        name, parameter = names[id(group['params'][0])], group['params'][0]
        assert group['lr'] == (1e-3 if name.startswith('head.') else 1e-4), name
        exempt = name.endswith('.bias') or 'norm' in name.lower() or 'broadcast' in name
        exempt = exempt or name == 'head.classifier.1.weight'
        assert group['weight_decay'] == (0 if exempt else 0.01), name
        assert parameter.requires_grad
    assert len(wrapper.optimizer.param_groups) == len(names)


def test_padding_in_the_mean_is_a_choice():
    """With it, more padding changes the scores; without it, it does not."""
    found = {}
    for choice in (False, True):
        model = build(
            '_cb_s_text', 'model.backbone.scale_init=1.0',
            f'model.backbone.padding_in_mean={choice}',
            'model.data_preprocessor.tokenizer=none',
        )  # fmt: skip
        ids = torch.tensor([[2, 5, 6, 3, 0, 0, 0]])
        image = dict(pixel_values=torch.ones(1, 3, 64, 64), pixel_mask=torch.ones(1, 64, 64).long())
        with torch.no_grad():
            found[choice] = [
                model(dict(input_ids=cut, attention_mask=(cut > 0).long(), **image))
                for cut in (ids, ids[:, :4])
            ]
    torch.testing.assert_close(*found[False])
    assert not torch.allclose(*found[True])
    torch.testing.assert_close(found[False][1], found[True][1])  # there is none to count


@pytest.mark.slow
def test_trains_resumes_and_is_tested(folders, tmp_path):
    vilt, data = folders
    file, options = config_file('_cb_s_both'), tiny_vqa.small_step()
    common = dict(data_root=str(data), init=str(vilt))
    whole, parts = tmp_path / 'whole', tmp_path / 'parts'
    every = [*options, 'train_cfg.max_epochs=2']
    run = apis.train(file, work_dir=str(whole), cfg_options=every, **common)
    assert run.runner.iter == 4  # two epochs of two batches
    apis.train(
        file, work_dir=str(parts), cfg_options=[*options, 'train_cfg.max_epochs=1'], **common
    )
    apis.train(file, work_dir=str(parts), cfg_options=every, resume='auto', **common)
    ended = [torch.load(one / 'epoch_2.pth', weights_only=False) for one in (whole, parts)]
    for name, value in ended[0]['state_dict'].items():
        assert torch.equal(value, ended[1]['state_dict'][name]), name
    scales = [v for name, v in ended[0]['state_dict'].items() if name.endswith('broadcast.scale')]
    assert len(scales) == 2
    assert all(scale.abs().sum() > 0 for scale in scales)

    def test(kind: str, **more):
        return apis.evaluate_robustness(
            config_file(kind), str(whole / 'epoch_2.pth'), data_root=str(data),
            cfg_options=[*tiny_vqa.small_step(vilt), *more.pop('cfg_options', [])], **more,
        )  # fmt: skip

    report = test('_cb_s_both', corruptions=['gaussian_blur=1'])
    assert [cell.key for cell in report.cells] == ['clean', 'gaussian_blur=1']
    clean = report.cells[0].metrics['vqa/accuracy']['mean']
    assert clean == pytest.approx(run.metrics['vqa/accuracy'])
    answers = tmp_path / 'answers.json'
    to_server = [f'test_evaluator.out_file={answers}']
    report = test('_cb_s_both', test_set='test-dev', cfg_options=to_server)
    assert report.cells[0].metrics['vqa/questions']['mean'] == 2
    assert answers.read_text().count('"question_id"') == 2
    with pytest.raises(UserError, match=r"tokens was 'both' and is 'text' here"):
        test('_cb_s_text')


def test_what_is_missing_is_named(folders, tmp_path, monkeypatch):
    from cb_mm.models.vilt import sources

    monkeypatch.setattr(sources, 'cache_alone_without_network', offline)
    model = build('')
    with pytest.raises(UserError, match=r'weights of dandelin/vilt-b32-mlm: there is no such'):
        model.init_weights()
    (tmp_path / 'empty').mkdir()
    model = build('', f'model.backbone.init_cfg.checkpoint={tmp_path}/empty')
    with pytest.raises(UserError, match='holds no weights of a ViLT'):
        model.init_weights()
    vilt, _ = folders
    other = build(
        '', f'model.backbone.init_cfg.checkpoint={vilt}', 'model.backbone.arch.hidden_size=8'
    )
    with pytest.raises(UserError, match=r'is another ViLT: .* Set model\.backbone\.arch'):
        other.init_weights()
    model = build('', 'model.backbone.init_cfg=None')
    with pytest.raises(UserError, match=r'model\.data_preprocessor\.tokenizer=DIR'):
        model.init_weights()
    model = build('', 'model.head.num_classes=2', f'model.backbone.init_cfg.checkpoint={vilt}')
    with pytest.raises(UserError, match=r'answer number 2 .* is beyond the 2 of the model'):
        model(**model.data_preprocessor(batch()), mode='loss')


def offline():
    """The hub's cache alone, without asking the network."""
    import contextlib

    from huggingface_hub import constants

    @contextlib.contextmanager
    def only_cache():
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(constants, 'HF_HUB_OFFLINE', True)
            yield

    return only_cache()
