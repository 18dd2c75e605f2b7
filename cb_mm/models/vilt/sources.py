"""Weights and words of a published ViLT: a folder, or a name of the Hugging Face Hub."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator
from pathlib import Path

from torch import Tensor
from transformers import BertTokenizerFast, PreTrainedTokenizerBase, ViltModel
from transformers.utils import logging as transformers_logging

from ...checkpoints.sources import cache_alone_without_network
from ...errors import UserError


@contextlib.contextmanager
def _explained(source: str, what: str) -> Iterator[None]:
    """Turn what goes wrong in transformers into one message, and keep it from printing."""
    verbosity = transformers_logging.get_verbosity()
    transformers_logging.set_verbosity(logging.ERROR)
    try:
        with cache_alone_without_network():
            yield
    except (OSError, ValueError, TypeError) as error:
        if Path(source).is_dir():
            reason = ' '.join(str(error).split())[:200]
            raise UserError(f'folder {source} holds no {what} of a ViLT: {reason}') from error
        raise UserError(
            f'{what} of {source}: there is no such folder, the name is not in the local cache of '
            'the Hugging Face Hub, and it could not be downloaded. Download it where there is a '
            'network, and pass its folder: `init` DIR; to test, `cfg_options` '
            'model.data_preprocessor.tokenizer=DIR.'
        ) from error
    finally:
        transformers_logging.set_verbosity(verbosity)


def read_vilt(source: str) -> tuple[dict[str, Tensor], list[str]]:
    """Return the weights of a published ViLT without its heads, and names of those it lacks."""
    with _explained(source, 'weights'):
        model, info = ViltModel.from_pretrained(source, output_loading_info=True)
    return model.state_dict(), sorted(info['missing_keys'])


def read_tokenizer(source: str) -> PreTrainedTokenizerBase:
    """Return the tokenizer of a published ViLT: BERT's, from ``vocab.txt`` or tokenizer.json."""
    with _explained(source, 'vocabulary'):
        return BertTokenizerFast.from_pretrained(source)
