"""Write the list of types that --safe-config takes, and look through the source of each.

    python benchmarks/safe_types.py            # write cb_mm/config/restricted/allowed_types.txt
    python benchmarks/safe_types.py --count    # how many configs of each package pass
    python benchmarks/safe_types.py --count --packages DIR    # of packages unpacked into a folder

The source is read, not imported: a class is looked through whether or not what it needs is
installed.
"""

from __future__ import annotations

import argparse
import ast
import importlib.util
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

REPO = Path(__file__).resolve().parent.parent
PACKAGES = ('mmseg', 'mmdet', 'mmpretrain')
LIST = REPO / 'cb_mm' / 'config' / 'restricted' / 'allowed_types.txt'

#: Calls that could run, unpickle, import or delete what they are given, by their last names.
CALLS = {
    'OmegaConf', 'Popen', '__import__', 'check_call', 'check_output', 'compile', 'eval', 'exec',
    'from_pretrained', 'fromfile', 'get_object_from_string', 'import_module',
    'import_modules_from_strings', 'instantiate_from_config', 'joblib', 'load_module', 'loads',
    'popen', 'rmtree', 'run_path', 'spawn', 'startfile', 'system', 'unlink', 'unsafe_load',
}  # fmt: skip
#: Calls that write where an option may say.
WRITES = {
    'create_model', 'download_and_extract_archive', 'dump', 'imwrite', 'jsonlines.open', 'makedirs',
    'mkdir', 'mkdir_or_exist', 'put_text', 'save', 'save_checkpoint', 'savefig', 'to_csv',
    'write_bytes', 'write_text',
}  # fmt: skip
#: Dotted names that are harmless although they end like one of the above.
HARMLESS = {'re.compile', 'torch.compile', 'json.loads'}
LOADERS = {'joblib.load', 'pickle.load', 'torch.load', 'yaml.load'}
MODULES = {'albumentations', 'builtins', 'cv2', 'iaa', 'nn', 'np', 'os', 'sys', 'torch'}

#: Where such a call was looked at, and why no option of a config reaches it with harm.
REVIEWED = {
    'cb_mm.engine.hooks.checkpoint.SafeCheckpointHook':
    'removes its own checkpoints; out_dir is refused',
    'cb_mm.models.backbones.with_cb.with_broadcast': 'imports the models of three known packages',
    'cb_mm.models.distillation.Teacher':
    'takes names of timm itself; checkpoint_path and pretrained_cfg are refused',
    'mmdet.datasets.crowdhuman.CrowdHumanDataset': 'writes the sizes of its images beside them',
    'mmdet.datasets.transforms.text_transformers.RandomSamplingNegPos': 'takes names on the Hub',
    'mmdet.datasets.transforms.transforms.Albu': 'takes the names of allowed types only',
    'mmdet.engine.hooks.visualization_hook.DetVisualizationHook': 'test_out_dir must be inside',
    'mmdet.engine.hooks.visualization_hook.GroundingVisualizationHook':
    'test_out_dir must be inside',
    'mmdet.engine.hooks.visualization_hook.TrackVisualizationHook': 'test_out_dir must be inside',
    'mmdet.evaluation.metrics.base_video_metric.collect_tracking_results_cpu':
    'collect_dir is refused',
    'mmdet.evaluation.metrics.coco_caption_metric.save_result': 'into a temporary folder',
    'mmdet.evaluation.metrics.coco_metric.CocoMetric': 'outfile_prefix must be inside',
    'mmdet.evaluation.metrics.coco_panoptic_metric.CocoPanopticMetric':
    'outfile_prefix must be inside',
    'mmdet.evaluation.metrics.crowdhuman_metric.CrowdHumanMetric': 'outfile_prefix must be inside',
    'mmdet.evaluation.metrics.dump_odvg_results.DumpODVGResults': 'outfile_path must be inside',
    'mmdet.evaluation.metrics.mot_challenge_metric.MOTChallengeMetric': 'outfile_prefix is refused',
    'mmdet.evaluation.metrics.semseg_metric.SemSegMetric': 'output_dir must be inside',
    'mmdet.evaluation.metrics.youtube_vis_metric.YouTubeVISMetric': 'outfile_prefix must be inside',
    'mmdet.models.dense_heads.atss_vlfusion_head.VLFusionModule': 'takes names on the Hub only',
    'mmdet.models.detectors.kd_one_stage.KnowledgeDistillationSingleStageDetector':
    "reads its teacher's config, which is then read as a safe one",
    'mmdet.models.language_models.bert.BertEncoder': 'takes names on the Hub, and nothing else',
    'mmdet.models.language_models.bert.BertModel': 'takes names on the Hub, and nothing else',
    'mmdet.models.task_modules.tracking.camera_motion_compensation.CameraMotionCompensation':
    'evaluates warp_mode, which must be one of four constants',
    'mmdet.visualization.local_visualizer.DetLocalVisualizer': 'writes where its caller says',
    'mmdet.visualization.local_visualizer.TrackLocalVisualizer': 'writes where its caller says',
    'mmengine.dataset.base_dataset.BaseDataset': 'unpickles what it has pickled, in memory',
    'mmengine.hooks.checkpoint_hook.CheckpointHook':
    'removes its own checkpoints; out_dir is refused',
    'mmengine.hooks.logger_hook.LoggerHook': 'removes what it has copied to out_dir: refused',
    'mmengine.optim.optimizer.amp_optimizer_wrapper.AmpOptimWrapper':
    'looks up a dtype and does not call it',
    'mmengine.visualization.vis_backend.LocalVisBackend': 'save_dir must be inside',
    'mmengine.visualization.vis_backend.TensorboardVisBackend': 'save_dir must be inside',
    'mmengine.visualization.vis_backend.WandbVisBackend':
    'save_dir must be inside; what it sends is restricted',
    'mmpretrain.datasets.cifar.CIFAR10':
    'compares the published checksums before it unpickles; downloads into its data folder',
    'mmpretrain.datasets.mnist.MNIST': 'downloads the published files into its data folder',
    'mmpretrain.datasets.transforms.processing.Albumentations': 'takes the names of allowed types',
    'mmpretrain.evaluation.metrics.caption.save_result':
    'into a temporary folder, or save_dir, which must be inside',
    'mmpretrain.evaluation.metrics.nocaps.NocapsSave': 'save_dir must be inside',
    'mmpretrain.evaluation.metrics.vqa.ReportVQA': 'file_path must be inside',
    'mmpretrain.models.backbones.timm_backbone.TIMMBackbone': 'models of timm alone, without files',
    'mmpretrain.models.multimodal.blip2.Qformer.Qformer': 'takes names on the Hub',
    'mmpretrain.models.utils.tokenizer.Blip2Tokenizer': 'its options are listed',
    'mmpretrain.models.utils.tokenizer.BlipTokenizer': 'its options are listed',
    'mmpretrain.models.utils.tokenizer.OFATokenizer': 'its options are listed',
    'mmpretrain.visualization.visualizer.UniversalVisualizer': 'writes where its caller says',
    'mmseg.datasets.transforms.transforms.Albu': 'takes the names of allowed types only',
    'mmseg.evaluation.metrics.depth_metric.DepthMetric': 'output_dir must be inside',
    'mmseg.evaluation.metrics.iou_metric.IoUMetric': 'output_dir must be inside',
    'mmseg.models.backbones.timm_backbone.TIMMBackbone': 'models of timm alone, without files',
    'mmseg.visualization.local_visualizer.SegLocalVisualizer': 'writes where its caller says',
}  # fmt: skip


#: What people name in configs of their own, and the shipped configs do not: data sets in folders
#: of their own (docs/own_data.md), and a second place to log to.
OWN = {
    'BaseCDDataset', 'BaseDetDataset', 'BaseSegDataset', 'CustomDataset', 'TensorboardVisBackend',
}  # fmt: skip

#: Where packages are unpacked, if they are not those that are installed.
unpacked: Path | None = None


def package_folder(package: str) -> Path:
    """Return where a package is."""
    if unpacked is not None:
        return unpacked / package
    spec = importlib.util.find_spec(package)
    assert spec is not None
    assert spec.origin is not None
    return Path(spec.origin).parent


def our_configs() -> list[Path]:
    """Return the configs of this repository, bases included."""
    return sorted((REPO / 'configs').rglob('*.py'))


def shipped_configs(package: str) -> list[Path]:
    """Return the configs that come with mmseg, mmdet or mmpretrain, in the classic syntax.

    The newer ones in ``PACKAGE/configs`` begin with ``with read_base():`` and import classes. They
    are another language, and --safe-config refuses all of them.
    """
    return sorted((package_folder(package) / '.mim' / 'configs').rglob('*.py'))


def types_in(content: Any) -> Iterator[str]:
    """Yield the types that a config names, without their packages."""
    from cb_mm.config.restricted.content import PACKAGES as SCOPES

    if isinstance(content, dict):
        for key in ('type', 'constructor', 'ema_type', 'runner_type'):
            if isinstance(content.get(key), str):
                scope, _, name = content[key].rpartition('.')
                if not scope or scope in SCOPES:
                    yield name
        for value in content.values():
            yield from types_in(value)
    elif isinstance(content, (list, tuple)):
        for value in content:
            yield from types_in(value)


def registered_types(package: Path) -> set[str]:
    """Return the names of the classes of a package with a ``register_module`` above them."""
    names = set()
    for file in package.rglob('*.py'):
        for node in ast.walk(ast.parse(file.read_text('utf-8'))):
            if isinstance(node, (ast.ClassDef, ast.FunctionDef)):
                names |= {*_registered_names(node)}
    return names


def _registered_names(node: ast.ClassDef | ast.FunctionDef) -> Iterator[str]:
    for decorator in node.decorator_list:
        if isinstance(decorator, ast.Call) and 'register' in ast.unparse(decorator.func):
            values = [*decorator.args, *(word.value for word in decorator.keywords)]
            given = [n.value for v in values for n in ast.walk(v) if isinstance(n, ast.Constant)]
            yield from [name for name in given if isinstance(name, str)] or [node.name]


def wanted_types(configs: list[Path]) -> set[str]:
    """Return all types in these configs that are not refused, those of cb_mm itself, and `OWN`."""
    from cb_mm.config.restricted.files import Reader
    from cb_mm.config.restricted.types import REFUSED
    from cb_mm.errors import UserError

    names = registered_types(REPO / 'cb_mm') | OWN
    for file in configs:
        try:
            names |= {*types_in(Reader().read(file))}
        except UserError:
            continue
    return names - {*REFUSED}


Definition = tuple[str, ast.ClassDef | ast.FunctionDef, dict[str, ast.AST]]


@cache
def index() -> dict[str, list[Definition]]:
    """Return every class and function of the packages by its name and its registered names."""
    found: dict[str, list[Definition]] = defaultdict(list)
    for package in (*PACKAGES, 'mmcv', 'mmengine', 'cb_mm'):
        folder = REPO / 'cb_mm' if package == 'cb_mm' else package_folder(package)
        for file in sorted(folder.rglob('*.py')):
            if '.mim' in file.parts or 'configs' in file.relative_to(folder).parts:
                continue
            module = '.'.join([package, *file.relative_to(folder).with_suffix('').parts])
            tree = ast.parse(file.read_text('utf-8'))
            own = {n.name: n for n in tree.body if isinstance(n, (ast.ClassDef, ast.FunctionDef))}
            for node in ast.walk(tree):
                if isinstance(node, (ast.ClassDef, ast.FunctionDef)):
                    for name in {node.name, *_registered_names(node)}:
                        found[name].append((module, node, own))
    return found


def calls_to_review(name: str) -> set[tuple[str, str]]:
    """Return (where, call) of what in the source of a type could run its options.

    Looks at every class and function of this name, at their base classes, and at what they use of
    the module that they are in.
    """
    waiting: list[Definition] = [*index().get(name, [])]
    seen: set[int] = set()
    found = set()
    while waiting:
        module, node, own = waiting.pop()
        if id(node) in seen:
            continue
        seen.add(id(node))
        used = {n.id for n in ast.walk(node) if isinstance(n, ast.Name)}
        waiting += [(module, own[other], own) for other in used & {*own}]
        for base in getattr(node, 'bases', []):
            waiting += index().get(ast.unparse(base).split('.')[-1], [])
        found |= {(f'{module}.{node.name}', call) for call in _calls(node)}
    return found


def _calls(node: ast.AST) -> Iterator[str]:
    for call in ast.walk(node):
        if not isinstance(call, ast.Call):
            continue
        name = ast.unparse(call.func)
        first, _, last = name.rpartition('.')
        options = {word.arg: ast.unparse(word.value) for word in call.keywords if word.arg}
        if name == 'getattr':
            holder = ast.unparse(call.args[0])
            if holder in MODULES and not isinstance(call.args[1], ast.Constant):
                yield f'getattr({holder})'
        elif (
            {last, name} & WRITES
            or (name == 'open' and _is_write_mode(call, options))
            or (last in CALLS and name not in HARMLESS and not (last == 'eval' and first))
            or (last == 'remove' and (first in ('', 'os') or first.endswith('backend')))
            or (name in LOADERS and options.get('weights_only') != 'True')
            or (last == 'load' and 'pkl' in options.get('file_format', ''))
            or first in ('subprocess', 'torch.hub')
            or options.get('allow_pickle') == 'True'
            or 'trust_remote_code' in options
        ):
            yield name


def _is_write_mode(call: ast.Call, options: dict[str, str]) -> bool:
    mode = options.get('mode', ast.unparse(call.args[1]) if len(call.args) > 1 else '')
    return not {*mode} <= {*"'rbt"}


def count() -> None:
    """Print for each package how many of its configs pass, and why the others do not."""
    from cb_mm.config import restricted as safe_config
    from cb_mm.errors import UserError

    for package in ('cb_mm', *PACKAGES):
        files = our_configs() if package == 'cb_mm' else shipped_configs(package)
        refused: Counter[str] = Counter()
        for file in files:
            try:
                safe_config.read(file)
            except UserError as error:
                reason = str(error).replace(str(file), file.name)
                refused[reason.split('. Allowed')[0][:150]] += 1
        passed = len(files) - sum(refused.values())
        print(f'{package}: {passed} of {len(files)} ({100 * passed / len(files):.1f} %)')
        for reason, number in refused.most_common():
            print(f'  {number:3d}  {reason}')


def main(argv: list[str] | None = None) -> int:
    """Write the list, or count the configs that pass."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument('--count', action='store_true', help='count the configs that pass')
    parser.add_argument('--packages', type=Path, metavar='DIR', help='with mmseg, mmdet, '
                        'mmpretrain, mmcv and mmengine, such as wheels of another family; their '
                        'source is searched too, and nothing is written')  # fmt: skip
    args = parser.parse_args(argv)
    global unpacked
    unpacked = args.packages
    if args.count:
        count()
        return 0
    configs = [
        *(REPO / 'configs').rglob('*.py'),
        *(c for p in PACKAGES for c in shipped_configs(p)),
    ]
    names = sorted(wanted_types(configs))
    wrong = {
        (name, where, call)
        for name in names
        for where, call in calls_to_review(name)
        if where not in REVIEWED
    }
    for name, where, call in sorted(wrong):
        print(f'{name}: {where} calls {call}', file=sys.stderr)
    if wrong:
        print('Review these: REFUSED in types.py, or REVIEWED here.', file=sys.stderr)
        return 1
    if unpacked is not None:
        from cb_mm.config.restricted.types import ALLOWED

        print(f'{len(names)} types, each reviewed; not on the list: {sorted({*names} - ALLOWED)}')
        return 0
    LIST.write_text('\n'.join(names) + '\n', encoding='utf-8')
    print(f'{len(names)} types in {LIST}')
    return 0


if __name__ == '__main__':
    sys.exit(main())
