"""What a config offers by name: schedules and test sets."""

from __future__ import annotations

from mmengine.config import Config

from ..errors import UserError, did_you_mean
from . import restricted as safe_config


def apply_schedule(config: Config, name: str | None) -> None:
    """Change iterations, learning-rate schedule and intervals together, to a schedule by name."""
    _choose(config, name, 'schedule', if_none='It has none.')


def apply_test_set(config: Config, name: str | None) -> None:
    """Change the data set and metric of testing to another one of the config, by name."""
    _choose(config, name, 'test_set', if_none='It has only one.')


def _choose(config: Config, name: str | None, key: str, if_none: str) -> None:
    """Apply one of the named changes under the plural of ``key``; ``key`` names the present one."""
    if name is None:
        return
    known = {config.get(key): {}, **config.get(f'{key}s', {})}
    if name not in known:
        names = [word for word in known if word]
        has = f'It has: {", ".join(names)}.' if names else if_none
        raise UserError(
            f'`{key}` {name}: the config has no such {key.replace("_", " ")}.'
            f'{did_you_mean(name, names)} {has}'
        )
    config.merge_from_dict(known[name].to_dict() if known[name] else {})
    config[key] = name
    safe_config.check(config, f'the {key.replace("_", " ")} {name} of the config')
