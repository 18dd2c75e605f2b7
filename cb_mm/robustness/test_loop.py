"""A test loop for third-party tools: a suite of corruptions instead of one pass."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any

from mmengine.logging import print_log
from mmengine.registry import LOOPS
from mmengine.runner import BaseLoop, Runner
from torch.utils.data import DataLoader

from ..checkpoints.label_set import LabelSet
from ..checkpoints.match import require_fit, weights_in
from ..checkpoints.provenance import check_exact
from ..checkpoints.read import read_checkpoint
from ..compat.wrappers import unwrap, with_weights
from ..errors import UserError
from ..fileio.result_files import read_json
from .given import describe_data
from .sweep import SweepOptions, sweep


@LOOPS.register_module()
class RobustnessTestLoop(BaseLoop):
    """Test under corruption from ``tools/test.py`` of mmseg, mmdet or mmpretrain.

    In the config, beside ``custom_imports = dict(imports=['cb_mm'])``::

        test_cfg = dict(type='RobustnessTestLoop', suite='table9')

    Tables and figures go to ``out``; the mean of every headline metric in every cell, as
    'gaussian_noise=5/mIoU', is what the loop returns and the hooks of the host get.

    Args:
        runner: The host's.
        dataloader: The host's ``test_dataloader``.
        evaluator: The host's ``test_evaluator``.
        suite: As in `cb_mm.apis.evaluate_robustness`, and so are those that follow.
        corruptions: Names with levels.
        severity: For corruptions without a level.
        fgsm: Strengths of an attack.
        attacks: Attacks with strengths; what follows belongs to them.
        attack_steps: Number of steps.
        attack_step_size: A step, as a share of ε.
        attack_restarts: Random starts of each image; the best one counts.
        random_start: Begin at random, where an attack does so.
        repeats: Passes of a random corruption.
        seed: Of the noise.
        limit: Only the first images.
        out: Folder of the results; by default one in the work directory.
        compare: ``results.json`` of another model.
        reference: ``results.json`` of the model that mCE refers to.
        metrics: Names of metrics to add: 'calibration', 'boundary'.
        cache_mb: Maximum memory for decoded images.
        allow_mismatch: Take a checkpoint that was trained with something else.
        fp16: Half precision, as in mmengine's own test loop.
    """

    def __init__(
        self,
        runner: Runner,
        dataloader: DataLoader | dict,
        evaluator: Any = None,
        *,
        suite: str | None = None,
        corruptions: Sequence[str] = (),
        severity: int | None = None,
        repeats: int = SweepOptions.repeats,
        seed: int = 0,
        limit: int | None = None,
        fgsm: Sequence[float] = (),
        attacks: Sequence[str] = (),
        attack_steps: int | None = None,
        attack_step_size: float | None = None,
        attack_restarts: int | None = None,
        random_start: bool = True,
        out: str | None = None,
        compare: str | None = None,
        reference: str | None = None,
        metrics: Sequence[str] = (),
        cache_mb: int = SweepOptions.cache_mb,
        allow_mismatch: bool = False,
        fp16: bool = False,
    ) -> None:
        super().__init__(runner, dataloader)
        self.options: dict[str, Any] = {
            'suite': suite,
            'corruption': corruptions,
            'severity': severity,
            'fgsm': fgsm,
            'attacks': attacks,
            'attack_steps': attack_steps,
            'attack_step_size': attack_step_size,
            'attack_restarts': attack_restarts,
            'random_start': random_start,
            'repeats': repeats,
            'seed': seed,
            'limit': limit,
            'out': out,
            'compare': compare,
            'reference': reference,
            'extra_metrics': metrics,
            'cache_mb': cache_mb,
            'allow_mismatch': allow_mismatch,
            'amp': fp16,
        }

    @property
    def evaluator(self) -> Any:
        """Refuse what mmdet's ``tools/test.py --out`` does: add a metric to the evaluator."""
        raise UserError(
            'RobustnessTestLoop has no single evaluator: every pass has its own. Call '
            'tools/test.py without `--out`; `out` in test_cfg names the folder of the results.'
        )

    def run(self) -> dict[str, float]:
        """Run the suite on the runner's model and return the means by cell and metric."""
        runner = self.runner
        self._say_what_is_not_done()
        runner.call_hook('before_test')
        runner.call_hook('before_test_epoch')
        model = unwrap(runner.model)
        options = SweepOptions(runner.cfg, work_dir=runner.work_dir, model=model, **self.options)
        if not isinstance(runner.cfg.get('test_dataloader'), Mapping):
            describe_data(runner.cfg, self.dataloader)
            options.data_loader = self.dataloader
        if runner.cfg.get('load_from'):
            self._require_exact(runner.cfg.load_from, model)
            options.checkpoint = runner.cfg.load_from
        out = sweep(options)
        metrics = {}
        if out is not None:
            results = read_json(out / 'results.json')
            metrics = {
                f'{cell["key"]}/{name}': cell['metrics'][name]['mean']
                for cell in results['cells']
                for name in results['headline']
                if cell['metrics'][name]['mean'] is not None
            }
            print_log(f'\n{(out / "results.md").read_text()}\nresults: {out}', runner.logger)
        runner.call_hook('after_test_epoch', metrics=metrics)
        runner.call_hook('after_test')
        return metrics

    def _say_what_is_not_done(self) -> None:
        """Name options of the host's tool that mean one pass."""
        said = []
        if any(getattr(hook, 'draw', False) for hook in self.runner.hooks):
            said.append(
                'RobustnessTestLoop draws no predictions (draw=True of a hook, which tools/test.py '
                'sets for `--show` and `--show-dir`). `cb-mm test --show-dir` does.'
            )
        metrics = self.runner.cfg.get('test_evaluator')
        for metric in metrics if isinstance(metrics, (list, tuple)) else [metrics]:
            if isinstance(metric, Mapping) and metric.get('output_dir'):
                said.append(
                    'every pass writes its predictions to the same folder, which tools/test.py '
                    f'calls `--out`: {metric["output_dir"]} holds those of the last pass alone.'
                )
        for line in said:
            print_log(line, self.runner.logger, logging.WARNING)

    def _require_exact(self, file: str, model: Any) -> None:
        """Refuse weights that are not of exactly this model: mmengine takes what fits."""
        content = read_checkpoint(file)
        require_fit(with_weights(model), weights_in(content), file)
        labels = LabelSet.of_metainfo(self.dataloader.dataset.metainfo)
        check_exact(file, content, model, self.options['allow_mismatch'], labels)
