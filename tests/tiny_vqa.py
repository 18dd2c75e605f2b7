"""A folder in VQAv2's layout and a published ViLT, both small enough for a test."""

from __future__ import annotations

import json
from pathlib import Path

import cv2
import numpy as np

WORDS = ['[PAD]', '[UNK]', '[CLS]', '[SEP]', '[MASK]', 'what', 'is', 'this', 'how', 'many', '?']
#: Arguments of transformers' ViltConfig.
ARCH = dict(
    hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=32,
    image_size=64, patch_size=32, vocab_size=len(WORDS), max_position_embeddings=12,
)  # fmt: skip
#: The most frequent answers of the questions below, in the order of the vocabulary.
ANSWERS = ('yes', '2', 'red')


def write_vqa(root: Path, train: int = 4, val: int = 3, test: int = 2) -> Path:
    """The files of the release: one question per image, answered by ten people."""
    root.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(0)
    counts = {'train2014': train, 'val2014': val, 'test-dev2015': test}
    for split, count in counts.items():
        folder = 'test2015' if split.startswith('test') else split
        (root / folder).mkdir()
        questions, annotations = [], []
        for k in range(count):
            image_id, number = 10 + k, 100 * len(folder) + k
            size = (70, 40 + 20 * k, 3)
            image = rng.integers(0, 256, size, np.uint8)
            cv2.imwrite(str(root / folder / f'COCO_{folder}_{image_id:012d}.jpg'), image)
            asked = 'How many is this?' if k % 2 else 'What is this?'
            questions.append(dict(question_id=number, image_id=image_id, question=asked))
            annotations.append(annotation(number, k))
        write(root / f'v2_OpenEnded_mscoco_{split}_questions.json', questions=questions)
        if folder == split:
            write(root / f'v2_mscoco_{split}_annotations.json', annotations=annotations)
    return root


def annotation(number: int, k: int) -> dict:
    """Yes three times in four, Two and red beside it; one of ten people has another view.

    The most frequent answer is given as it has to be normalised, and is written by people as it is.
    """
    best, kind = (('yes', 'yes/no'), ('Two', 'number'), ('yes', 'yes/no'), ('red', 'other'))[k % 4]
    given = ['2' if best == 'Two' else best] * 7 + ['red', 'a red', 'unheard of']
    return dict(
        question_id=number,
        answer_type=kind,
        multiple_choice_answer=best,
        answers=[dict(answer=one, answer_id=i + 1) for i, one in enumerate(given)],
    )


def write(path: Path, **content: object) -> None:
    path.write_text(json.dumps(content))


def write_vilt(folder: Path) -> Path:
    """What a published ViLT has: config.json, weights, vocab.txt."""
    import torch
    from transformers import ViltConfig, ViltForMaskedLM

    torch.manual_seed(0)
    ViltForMaskedLM(ViltConfig(**ARCH)).save_pretrained(folder)
    (folder / 'vocab.txt').write_text('\n'.join(WORDS) + '\n')
    return folder


def small_step(
    vilt: Path | None = None, splits: tuple[str, ...] = ('train', 'val', 'test')
) -> list[str]:
    """Options that make a step of any config for VQAv2 cheap."""
    options = [f'model.backbone.arch.{key}={value}' for key, value in ARCH.items()]
    options += ['model.head.num_classes=3', 'train_dataloader.batch_size=2']
    for split in splits:
        loader = f'{split}_dataloader'
        resize = 2 if split == 'train' else 1
        options += [
            f'{loader}.num_workers=0', f'{loader}.persistent_workers=False',
            f'{loader}.dataset.min_count=1', f'{loader}.dataset.pipeline.{resize}.shorter=64',
        ]  # fmt: skip
    if vilt is not None:
        options.append(f'model.data_preprocessor.tokenizer={vilt}')
    return [*options, 'default_hooks.logger.interval=1']
