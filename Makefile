# make env     build the environment in .venv (rebuilt only when the pins change)
# make demo    build the environment, then train and test on embedded data
# make test    build the environment, then run the full test suite
# make bench   build the environment, then run every benchmark that needs no data: benchmarks/results
# make lint    build the environment, then check style, types and the order of the rooms
# make check   make lint, then the quick tests: what to run while working
#
# FAMILY=openmmlab uses the original OpenMMLab releases, in a separate environment.
# PYTHON=python3.12 chooses the interpreter.

comma := ,
FAMILY ?= onedl
PYTHON ?= python3
VENV := $(if $(filter onedl,$(FAMILY)),.venv,.venv-$(FAMILY))
BIN := $(VENV)/bin
EXTRAS := $(if $(filter onedl,$(FAMILY)),onedl$(comma)pretrain,openmmlab$(comma)pretrain-openmmlab)

ifeq ($(filter $(FAMILY),onedl openmmlab),)
$(error FAMILY is "$(FAMILY)"; it must be onedl or openmmlab)
endif

# Two workers with one thread each: the tests are many small jobs. A file is one worker's, whose
# fixtures its tests share; slow files come first (tests/conftest.py).
JOBS ?= 2
DIST := -n $(JOBS) --dist loadfile --no-loadscope-reorder

.PHONY: env demo test bench lint check clean
.DEFAULT_GOAL := test

# The stamp holds a checksum of the pins, not a date: a fresh checkout has new dates, not new pins.
env:
	@pins="$$(cat constraints.txt pyproject.toml | cksum)"; \
	if [ "$$(cat $(VENV)/.pins 2>/dev/null)" != "$$pins" ]; then \
		$(MAKE) --no-print-directory build-env && echo "$$pins" > $(VENV)/.pins; \
	fi

# MMCV_WITH_OPS=0: mmcv stays pure Python, so that no compiler is needed (see cb_mm/compat/mmcv_ops).
# The last install: mmcv requires opencv-python, whose files need libGL and overwrite those of the
# headless version. Reinstalling the headless version last lets cv2 be imported on a server.
.PHONY: build-env
build-env:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10))' || \
		{ echo "cb_mm needs Python 3.10 or newer; $(PYTHON) is $$($(PYTHON) -V 2>&1). Try: make PYTHON=python3.12 ..."; exit 2; }
	@echo "Building $(VENV) ($(FAMILY)): a few minutes, mostly downloading torch"
	$(PYTHON) -m venv --clear $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --upgrade pip
	MMCV_WITH_OPS=0 $(BIN)/python -m pip install --quiet --progress-bar off \
		--constraint constraints.txt --editable ".[$(EXTRAS),dev]"
	$(BIN)/python -m pip install --quiet --progress-bar off --no-deps --force-reinstall \
		--constraint constraints.txt opencv-python-headless
	$(BIN)/python -m cb_mm.doctor

demo: env
	$(BIN)/python tools/demo.py

test: env
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest $(DIST)

# These train for hours on real data: see their --help.
STUDIES := $(addprefix benchmarks/,attacks.py coco_check.py guard_cost.py mutation.py study.py \
	sweep_parts.py whole_jobs.py)

bench: env
	@for file in $(filter-out $(STUDIES) benchmarks/page.py,$(wildcard benchmarks/*.py)); do \
		echo "== $$file"; $(BIN)/python "$$file" || exit; \
	done
	$(BIN)/python benchmarks/page.py

lint: env
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo

# Some 400 tests of most rooms that start no training; about a minute on one core. CI runs all.
QUICK ?= $(addprefix tests/,fileio apis/test_options.py checkpoints/test_npz.py \
	compat/test_errors.py config/test_config_parts.py config/test_length.py corruption/test_corruption_suites.py \
	corruption/test_corruption_transform.py engine/test_batch.py models/test_context_broadcast.py \
	models/test_insertion.py models/test_pyramid.py prediction/test_class_colours.py \
	robustness/test_image_intervals.py robustness/test_robustness_statistics.py \
	robustness/test_robustness_units.py tools/test_command.py tools/test_option_names.py)

check: lint
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -q $(DIST) -m 'not slow' $(QUICK)

clean:
	rm -rf .venv .venv-openmmlab build *.egg-info .pytest_cache .ruff_cache .mypy_cache .import_linter_cache
