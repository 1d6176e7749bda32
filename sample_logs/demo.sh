#!/bin/sh
# What `make demo` shows: the sample logs of a training job become a store, findings and override files.
set -eu
cd "$(dirname "$0")/.."
say() { printf '\n$ %s\n' "$*"; "$@"; }

set -- sample_logs/hipblaslt/*.log sample_logs/hipblaslt/*.txt sample_logs/miopen/*.log sample_logs/miopen/*.txt \
    sample_logs/tunableop/*.csv sample_logs/tunableop/*.log
say logparse ingest "$@" --run demo
say logparse recommend --target sample_logs/tunableop/tunableop_results0.csv --out overrides -n 8
say logparse top --by time -n 5
