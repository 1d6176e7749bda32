#!/bin/sh
# What `make demo` shows: the sample logs of a training job become a store, findings and override files.
set -eu
cd "$(dirname "$0")/.."
say() { printf '\n$ %s\n' "$*"; "$@"; }

set -- sample_logs/hipblaslt/*.log sample_logs/hipblaslt/*.txt sample_logs/miopen/*.log sample_logs/miopen/*.txt \
    sample_logs/tunableop/*.csv sample_logs/tunableop/*.log sample_logs/tunableop/torch2.5/*.csv
say logparse ingest "$@" --run demo
say logparse recommend --target sample_logs/tunableop/tunableop_results0.csv --out overrides -n 8
say logparse top --by time -n 5

# Where a torch is installed already, a few problems are measured too: on a GPU the job's own, on a CPU smaller ones.
case $(python3 -c 'import torch; print("gpu" if torch.cuda.is_available() else "cpu")' 2>/dev/null || echo none) in
gpu) say logparse replay --top 3 --budget 60s ;;
cpu)
    small="${LOGPARSE_STORE:-logparse-store}-small"
    printf '\ntorch sees no GPU: the plain GEMMs of a log, every size divided by 16, are measured on this CPU\n'
    grep '^hipblaslt-bench.* --batch_count 1 ' sample_logs/hipblaslt/hipblaslt_rank0_4242.log | sed 's/bf16_r/f32_r/g' |
        awk '{ for (i = 1; i < NF; i++) if ($i ~ /^(-[mnk]|--ld[abcd])$/) $(i + 1) /= 16; print }' |
        logparse ingest - --store "$small" --run small
    say logparse replay --store "$small" --top 3 --budget 60s
    ;;
*) printf '\nno torch here, so nothing is measured; to add it: .venv/bin/pip install torch, then again make demo\n' ;;
esac
