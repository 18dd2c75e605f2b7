"""Write docs/model_zoo.md: the table of models, from model-index.yml and the metafiles it imports.

python benchmarks/model_zoo.py
"""

from __future__ import annotations

import re
import sys
from collections import Counter
from pathlib import Path

import yaml

REPO = Path(__file__).resolve().parent.parent
PAGE = REPO / 'docs' / 'model_zoo.md'
START = """# Model zoo

All recipes in this package: each is a config with one of its schedules. **No weights are public**,
neither the paper's nor ours, so you train these models; you cannot download them.

- **The paper's** scores are from the paper, in per cent; we did not measure them. "–" means that it
  gives none.
- **Ours** were measured with this package and the given command; "not yet" until they are.
- **Parameters** are counted in the model that the config builds.
- WEIGHTS are the weights that the backbone starts from. The paper's were pre-trained with CB:
  [pre-training](pretraining.md) explains how, and what plain weights do instead.

`python benchmarks/model_zoo.py` writes this page from `model-index.yml` and the metafiles that it
imports. The test suite compares the page with them, and them with the configs.
"""
END = """## With mim

openmim 0.3.9 finds these models in the installed package. The first version limit below avoids an
openxlab that downgrades setuptools and tqdm; the second keeps `pkg_resources`, which openmim needs.

```bash
pip install openmim "openxlab<=0.0.11" "setuptools<81"
mim search cb_mm --model upernet --sort paper_miou --field paper_miou parameters measured
mim search cb_mm --condition 'paper_miou>43,parameters<60000000'
mim train cb_mm upernet_vit_s_cb.py --schedule 40k --init WEIGHTS --data-root DIR
mim train cb_mm upernet_vit_s_cb.py --launcher pytorch --gpus 8 --init WEIGHTS --data-root DIR
mim test cb_mm upernet_vit_s_cb.py --checkpoint CHECKPOINT --suite table9 --data-root DIR
mim run cb_mm visualize_attention CONFIG CHECKPOINT IMAGE --html
```

`mim train`, `mim test` and `mim gridsearch` take the name of a config and pass other options on to
`tools/train.py` and `tools/test.py`; `mim run` starts any tool. These do not work:

- `mim download`: it needs the address of weights, and there are none.
- `mim train cb_mm -h` and `mim run cb_mm -h`: mim lists only the tools and options of its own
  packages. See `python tools/train.py --help` for the options.
- openmim with an editable install: it only finds packages whose files are copied on installation.
  onedl-mim 0.5.1 is the other way round. In a checkout, the commands in the tables do not need mim.
"""
HEADER = (
    "| model | data | parameters, M | schedule | the paper's | ours | config | command |",
    '|---|---|---|---|---|---|---|---|',
)


def load_index() -> tuple[list[dict], list[dict]]:
    """Return the collections of models, and all models."""
    index = yaml.safe_load((REPO / 'model-index.yml').read_text())
    metafiles = [yaml.safe_load((REPO / name).read_text()) for name in index['Import']]
    return index['Collections'], [model for file in metafiles for model in file['Models']]


def page() -> str:
    """Return the complete page."""
    collections, models = load_index()
    schedules = Counter(model['Config'] for model in models)
    parts = [START]
    for collection in collections:
        rows = [
            row(model, several=schedules[model['Config']] > 1)
            for model in models
            if model['In Collection'] == collection['Name']
        ]
        parts.append('\n'.join([f'## {collection["Name"]}\n', *HEADER, *rows, '']))
    return '\n'.join([*parts, END])


def row(model: dict, several: bool) -> str:
    """Return the row of one model; its command names the schedule if the config has several."""
    data, config = model['Metadata'], model['Config']
    command = re.search(r'^ +(python tools/train\.py .*)', (REPO / config).read_text(), re.M)[1]
    if several:
        command += f' --schedule {data["Schedule"]}'
    paper, ours = figures(model)
    cells = [
        data['Backbone'],
        data['Training Data'],
        f'{data["Parameters"] / 1e6:.2f}',
        data['Schedule'],
        paper or '–',
        f'{ours}: {data["Measured by us"]}' if ours else data['Measured by us'],
        f'[{Path(config).name}](../{config})',
        f'`{command}`',
    ]
    return f'| {" | ".join(cells)} |'


def figures(model: dict) -> tuple[str, str]:
    """Return the paper's scores and ours, with the names of metrics and of other test sets."""
    paper, ours = [], []
    for result in model.get('Results', []):
        dataset, trained_on = result['Dataset'], model['Metadata']['Training Data']
        for name, value in result['Metrics'].items():
            metric = name.removeprefix('Paper ')
            where = '' if dataset == trained_on else f'{dataset} '
            (ours if metric == name else paper).append(f'{where}{metric} {value}')
    return ', '.join(paper), ', '.join(ours)


def main() -> int:
    """Write the page."""
    sys.path.insert(0, str(REPO))
    from cb_mm.fileio.atomic import write_atomically

    write_atomically(PAGE, page())
    return 0


if __name__ == '__main__':
    sys.exit(main())
