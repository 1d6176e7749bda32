#!/bin/sh
# What `make demo` shows: the sample logs of a training job become a store, findings and override files.
set -eu
cd "$(dirname "$0")/.."
say() { printf '\n$ %s\n' "$*"; "$@"; }

say logparse ingest 'sample_logs/*/*.log' 'sample_logs/*/*.txt' 'sample_logs/*/*.csv' --run demo
say logparse recommend --target sample_logs/tunableop/tunableop_results0.csv --out overrides -n 8
say logparse top --by time -n 5
