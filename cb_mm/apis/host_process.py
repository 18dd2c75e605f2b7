"""The process that calls the Python interface, left as it was before.

What stays: modules that were imported, with what they register, warn and log with; and caches. A
training run also leaves its Runner, with the logger, the scope and the random numbers of mmengine.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
from collections.abc import Iterator, Sequence
from typing import Any

import cv2
import torch
from mmengine.logging import MessageHub, MMLogger
from mmengine.registry import DefaultScope
from mmengine.visualization import Visualizer
from torch import nn

from ..datasets.samplers.replay import kept_generators

#: Classes of mmengine whose latest instance is "the current one" for everybody.
_CURRENT: tuple[Any, ...] = (MMLogger, MessageHub, Visualizer, DefaultScope)


@contextlib.contextmanager
def unchanged_process() -> Iterator[None]:
    """Restore settings, random generators, and mmengine's current logger, scope and the like."""
    before = [(owner, dict(owner._instance_dict)) for owner in _CURRENT]
    with unchanged_settings(), kept_generators(), _kept_gpu_generators():
        try:
            yield
        finally:
            for owner, instances in before:
                owner._instance_dict.clear()
                owner._instance_dict.update(instances)


@contextlib.contextmanager
def _kept_gpu_generators() -> Iterator[None]:
    """Put the generators of the GPUs back, if the process uses any."""
    states = torch.cuda.get_rng_state_all() if torch.cuda.is_initialized() else []
    try:
        yield
    finally:
        if states:
            torch.cuda.set_rng_state_all(states)


@contextlib.contextmanager
def unchanged_settings() -> Iterator[None]:
    """Restore threads, how processes start, cuDNN's choices and the environment.

    Configs and options can set them.
    """
    cudnn = torch.backends.cudnn
    threads, images = torch.get_num_threads(), cv2.getNumThreads()
    choices = cudnn.benchmark, cudnn.deterministic
    exact = torch.are_deterministic_algorithms_enabled()
    warned = torch.is_deterministic_algorithms_warn_only_enabled()
    environment, start = dict(os.environ), multiprocessing.get_start_method(allow_none=True)
    try:
        yield
    finally:
        if torch.get_num_threads() != threads:
            torch.set_num_threads(threads)
        cv2.setNumThreads(images)
        cudnn.benchmark, cudnn.deterministic = choices
        torch.use_deterministic_algorithms(exact, warn_only=warned)
        for name in [name for name in os.environ if name not in environment]:
            del os.environ[name]
        os.environ.update(environment)
        multiprocessing.set_start_method(start, force=True)


@contextlib.contextmanager
def unchanged_modes(values: Sequence[Any]) -> Iterator[None]:
    """Put every part of the models among the values back into training or evaluation mode."""
    models = [value for value in values if isinstance(value, nn.Module)]
    before = {part: part.training for model in models for part in model.modules()}
    try:
        yield
    finally:
        for part, training in before.items():
            part.training = training
