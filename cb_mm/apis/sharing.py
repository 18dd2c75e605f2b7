"""Sharing a trained model with its config and card: on the Hugging Face Hub or in a folder."""

from __future__ import annotations

import json
import os
import re
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from huggingface_hub import HfApi, constants, snapshot_download
from mmengine.config import Config
from safetensors.torch import save_file
from torch import Tensor, nn

from ..checkpoints.label_set import KEY, LabelSet
from ..checkpoints.load_model import load_model
from ..checkpoints.match import weights_in
from ..checkpoints.mmengine_files import safe_files
from ..checkpoints.provenance import Provenance
from ..checkpoints.read import SAFETENSORS_META, read_checkpoint
from ..checkpoints.sources import cache_alone_without_network
from ..config import restricted
from ..config.loading import dataset_configs, load_config
from ..errors import MissingFile, UserError
from ..fileio.atomic import draft_of, write_atomically
from ..fileio.digests import content_digest
from ..fileio.result_files import plain, write_json
from ..robustness.results_file import read_results
from .calls import api
from .model_card import TASKS, CardFacts, model_card

SCHEME = 'hf://'
_NAME = r'[\w.-]{1,96}/[\w.-]{1,96}'
CONFIG, WEIGHTS, CARD, RESULTS = 'config.py', 'model.safetensors', 'README.md', 'results.json'
_FILES = (CONFIG, WEIGHTS, CARD, RESULTS)
#: Settings of one machine or run, which say nothing about the model.
_LOCAL = ('work_dir', 'load_from', 'resume', 'launcher', 'auto_scale_lr')


@dataclass
class SharedModel:
    """A model that was shared.

    Attributes:
        folder: Where its files are; after a push to the Hub a temporary one, which lives as long as
            this object.
        config: Read without running it.
        checkpoint: Its weights.
        card: The text of the model card.
        address: On the Hub, or the folder.
    """

    folder: Path
    config: Config = field(repr=False)
    checkpoint: Path
    card: str = field(repr=False)
    address: str
    _temporary: Any = field(default=None, repr=False, compare=False)

    def model(self) -> nn.Module:
        """Build the model with its weights, in evaluation mode, with its config in ``cfg``.

        Some classes read another config or checkpoint that theirs names: neither runs code.
        """
        with restricted.only_data(), safe_files():
            model = load_model(self.config, self.checkpoint)
        model.cfg = self.config
        return model

    def save(self, folder: str | Path) -> list[Path]:
        """Copy the files into another folder."""
        return [
            write_atomically(Path(folder) / name, (self.folder / name).read_bytes())
            for name in _FILES
            if (self.folder / name).is_file()
        ]


@api
def push_to_hub(
    config: str | Path | Config,
    checkpoint: str | Path,
    target: str | Path,
    *,
    results: str | Path | None = None,
    data: str | None = None,
    licence: str | None = None,
    name: str | None = None,
    public: bool = False,
    token: str | None = None,
    trust_checkpoint: bool = False,
    safe_config: bool = False,
    verbose: bool = False,
) -> SharedModel:
    """Share a trained model with its config and a model card.

    Only weights and the record of how they were trained are shared: no optimizer state, no paths of
    this machine.

    Args:
        config: What it was trained with.
        checkpoint: Weights of exactly this model.
        target: 'hf://OWNER/NAME' on the Hugging Face Hub, or a local folder.
        results: ``results.json`` of a test of this checkpoint, for the scores in the card.
        data: What it was trained on, in your words.
        licence: Of the weights, such as 'apache-2.0'.
        name: What to call it; by default after the config.
        public: Make a new repository public; it is private by default.
        token: Of the Hub; by default the one that ``huggingface-cli login`` has stored.
        trust_checkpoint: Open a checkpoint with more than weights inside, which can run any code.
        safe_config: Refuse a config that holds more than data.
        verbose: Let mmengine and the Hub print.

    Returns:
        What was shared, with its address.

    Raises:
        UserError: Weights and config do not fit, the results are of another checkpoint, or the Hub
            cannot be reached.
    """
    settings = load_config(config)
    content = read_checkpoint(checkpoint, trust=trust_checkpoint)
    model = load_model(settings, checkpoint, trust=trust_checkpoint)
    scores = None if results is None else _results(results, checkpoint)
    called = name or Path(settings.filename or 'model').stem
    facts = _facts(called, settings, content, model)
    facts.data, facts.licence, facts.results = data, licence, scores
    repository = _repository(target)
    with tempfile.TemporaryDirectory(prefix='cb_mm_') as trial:  # refused before anything is shared
        _read_as_data(write_atomically(Path(trial) / CONFIG, _text(settings)))
    temporary = tempfile.TemporaryDirectory(prefix='cb_mm_') if repository else None
    folder = Path(target if temporary is None else temporary.name).expanduser()
    _write(folder, settings, content, facts)
    address = str(folder) if repository is None else f'{SCHEME}{repository}'
    shared = _shared_model(folder, address, temporary)
    if repository is None:
        return shared
    hub = HfApi(endpoint=constants.ENDPOINT, token=token)

    def upload() -> None:
        hub.create_repo(repository, private=not public, exist_ok=True)
        hub.upload_folder(repo_id=repository, folder_path=folder, commit_message=f'Share {called}')

    _reach(upload, f'{address} could not be written')
    return shared


@api
def load_from_hub(
    source: str | Path,
    *,
    revision: str | None = None,
    token: str | None = None,
    verbose: bool = False,
) -> SharedModel:
    """Fetch a shared model; its config is evaluated as data and never run.

    Args:
        source: 'hf://OWNER/NAME' on the Hugging Face Hub, or a local folder.
        revision: Branch, tag or commit on the Hub.
        token: For a private repository.
        verbose: Let the Hub print.

    Raises:
        UserError: There is no such model, or it cannot be fetched.
    """
    repository = _repository(source)
    folder = Path(source).expanduser()
    if repository:

        def fetch() -> str:
            with cache_alone_without_network():
                return snapshot_download(
                    repository, revision=revision, token=token, allow_patterns=list(_FILES),
                    endpoint=constants.ENDPOINT,
                )  # fmt: skip

        folder = Path(_reach(fetch, f'{SCHEME}{repository} could not be fetched'))
    for name in (CONFIG, WEIGHTS):
        if not (folder / name).is_file():
            hint = '' if repository or folder.exists() else _hub_hint(str(source))
            raise MissingFile(f'{source} is not a shared model: it has no {name}.{hint}')
    return _shared_model(folder, str(source))


def _shared_model(folder: Path, address: str, temporary: Any = None) -> SharedModel:
    """Return the model in a folder; its config is a stranger's, and evaluated as data."""
    card = folder / CARD
    text = card.read_text(encoding='utf-8', errors='replace') if card.is_file() else ''
    return SharedModel(
        folder, _read_as_data(folder / CONFIG), folder / WEIGHTS, text, address, temporary
    )


def _read_as_data(file: Path) -> Config:
    """Read a config that comes from, or goes to, a stranger."""
    try:
        with restricted.only_data():
            return load_config(file)
    except UserError as error:
        why = str(error).removeprefix('`safe_config`: ')
        raise UserError(f'a shared config is read as data and never run: {why}') from error


def _hub_hint(name: str) -> str:
    told = f' There is no such folder; on the Hub it would be {SCHEME}{name}.'
    return told if re.fullmatch(_NAME, name) else ''


def _repository(target: str | Path) -> str | None:
    """Return OWNER/NAME of an address on the Hub; None for a folder."""
    text = str(target)
    if not text.startswith(SCHEME):
        return None
    name = text.removeprefix(SCHEME).strip('/')
    if not re.fullmatch(_NAME, name):
        raise UserError(f'{text} is not an address such as {SCHEME}OWNER/NAME.')
    return name


def _reach(step: Callable[[], Any], failed: str) -> Any:
    try:
        return step()
    except Exception as error:  # the Hub's client raises errors of several libraries
        lines = str(error).strip().splitlines() or [type(error).__name__]
        raise UserError(
            f'{failed} ({lines[0]}). Check the name, the network and `token`; without a network, '
            'give a local folder.'
        ) from error


def _results(path: str | Path, checkpoint: str | Path) -> dict[str, Any]:
    results = read_results(path)
    if results['identity'].get('checkpoint') != content_digest(Path(checkpoint).expanduser()):
        raise UserError(
            f'`results` {path} is of another checkpoint than {checkpoint}. Test this one.'
        )
    return results


def _facts(name: str, config: Config, content: dict[str, Any], model: nn.Module) -> CardFacts:
    meta = _meta(content)
    steps = [f'{meta[key]:,} {word}' for key, word in (('iter', 'iterations'), ('epoch', 'epochs'))
             if isinstance(meta.get(key), int) and meta[key] > 0]  # fmt: skip
    if config.get('schedule'):
        steps.append(f'schedule {config.schedule}')
    data = next((str(one.get('type')) for one in dataset_configs(config)), None)
    labels = LabelSet.of_checkpoint(content).classes or LabelSet.of_config(config).classes
    return CardFacts(
        name,
        TASKS.get(str(config.get('default_scope')), 'other'),
        Provenance.of_checkpoint(content) or Provenance.of_model(model),
        dataset=data,
        classes=labels,
        steps=', '.join(steps) or None,
        parameters=sum(parameter.numel() for parameter in model.parameters()),
    )


def _meta(content: dict[str, Any]) -> dict[str, Any]:
    found = content.get('meta')
    return found if isinstance(found, dict) else {}


def _write(folder: Path, config: Config, content: dict[str, Any], facts: CardFacts) -> None:
    meta = _meta(content)
    kept = {key: meta[key] for key in (KEY, 'dataset_meta', 'iter', 'epoch') if key in meta}
    # Tensors that share memory, or are views, cannot be in such a file.
    weights = {
        key: value.detach().clone().contiguous()
        for key, value in weights_in(content).items()
        if isinstance(value, Tensor)
    }
    with draft_of(folder / WEIGHTS) as draft:
        save_file(weights, draft, {'format': 'pt', SAFETENSORS_META: json.dumps(plain(kept))})
    write_atomically(folder / CONFIG, _text(config))
    write_atomically(folder / CARD, model_card(facts))
    if facts.results is not None:
        public = {**facts.results, 'about': {**facts.results['about'], 'checkpoint': WEIGHTS}}
        public['about']['config'] = CONFIG
        write_json(folder / RESULTS, public)


def _text(config: Config) -> str:
    return public_config(config).pretty_text + '\n'


def public_config(config: Config) -> Config:
    """Return the config without settings and folders of this machine."""
    content = {key: value for key, value in config.to_dict().items() if key not in _LOCAL}
    roots = {str(one.get('data_root') or '').rstrip('/') for one in dataset_configs(config)}
    places = {root: f'data/{Path(root).name}' for root in roots if os.path.isabs(root)}

    def moved(node: Any) -> Any:
        if isinstance(node, dict):
            return {key: moved(value) for key, value in node.items()}
        if isinstance(node, (list, tuple)):
            return type(node)(moved(value) for value in node)
        for root, place in places.items():
            if isinstance(node, str) and f'{node}/'.startswith(f'{root}/'):
                return place + node[len(root) :]
        return node

    return Config(moved(content))
