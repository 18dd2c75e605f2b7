"""A Runner that shares nothing with earlier ones of its process, and prepares its model."""

from __future__ import annotations

from typing import Any

from mmengine.logging import MessageHub, MMLogger
from mmengine.runner import Runner
from mmengine.visualization import Visualizer
from torch import nn

from ..models.backbones.fast_products import use_fast_products
from .acceleration import use_channels_last


def runner_type(given: nn.Module | None, channels_last: bool) -> type[Runner]:
    """Return a Runner whose model is prepared before it is wrapped for several processes.

    Args:
        given: A model that is there already, and keeps the weights that it has.
        channels_last: The memory format that most convolutions prefer.
    """

    class PreparedRunner(_OwnRunner):
        def build_model(self, config: Any) -> nn.Module:
            if given is None:
                model = super().build_model(config)
                use_fast_products(model)
            else:
                model = given
            if channels_last:
                use_channels_last(model)
            return model

    if given is not None:
        given.is_init = True  # otherwise mmengine draws new weights at the start
    return PreparedRunner


class _OwnRunner(Runner):
    """Makes a logger, a message hub and a visualizer of its own.

    mmengine keeps them by name, and hands out an earlier one of that name: all visualizers of
    configs have one name, and two runs that begin within a second have one name and time. The
    second would log into the first one's files, and remove its own checkpoints as if they were the
    first one's old ones.
    """

    def build_logger(self, *args: Any, **options: Any) -> MMLogger:
        _forget(MMLogger, self.experiment_name)
        return super().build_logger(*args, **options)

    def build_message_hub(self, message_hub: dict | None = None) -> MessageHub:
        _forget(MessageHub, self.experiment_name)
        return super().build_message_hub(message_hub)

    def build_visualizer(self, visualizer: Visualizer | dict | None = None) -> Visualizer:
        if visualizer is None or isinstance(visualizer, dict):
            _forget(Visualizer, str((visualizer or {}).get('name') or self.experiment_name))
        return super().build_visualizer(visualizer)


def _forget(kind: Any, name: str) -> None:
    """Forget the instance of a name; each class keeps its own, so look at those derived too."""
    kinds = [kind]
    for one in kinds:
        one._instance_dict.pop(name, None)
        kinds += one.__subclasses__()
