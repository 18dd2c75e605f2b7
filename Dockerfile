# cb_mm with everything it needs, on a CPU or (with --gpus all and NVIDIA's container toolkit) a GPU.
#   docker build -t cb_mm .
#   docker run --rm -v "$PWD/data:/data" cb_mm cb-mm --help
FROM python:3.11-slim

# libglib2.0-0: of OpenCV without a screen.
RUN apt-get update && apt-get install --yes --no-install-recommends libglib2.0-0 \
    && rm -rf /var/lib/apt/lists/*

WORKDIR /opt/cb_mm
COPY . .

# The same commands as "make env", without the development tools.
RUN MMCV_WITH_OPS=0 python -m pip install --quiet --progress-bar off \
        --constraint constraints.txt --editable ".[onedl,pretrain]" \
    && python -m pip install --quiet --progress-bar off --no-deps --force-reinstall \
        --constraint constraints.txt opencv-python-headless \
    && python -m cb_mm.doctor

# Results belong to whoever mounts the folder, not to root.
RUN useradd --create-home user
USER user
WORKDIR /work
CMD ["cb-mm", "--help"]
