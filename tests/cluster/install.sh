#!/usr/bin/env bash
# Install what the tests in this folder need, on Debian or Ubuntu, as root: a Slurm that they start
# themselves in a scratch folder, and Open MPI. Without them those tests skip, and say so.
set -eu
command -v slurmctld slurmd munged mpirun >/dev/null && exit
export DEBIAN_FRONTEND=noninteractive
apt-get update
# The services that the packages would start are not used: each test session has its own.
apt-get install -y --no-install-recommends slurm-wlm munge openmpi-bin
