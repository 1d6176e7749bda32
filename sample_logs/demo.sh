#!/bin/sh
# What `make demo` shows: the sample logs of a training job become a store, findings and override files.
set -eu
cd "$(dirname "$0")/.."
say() { printf '\n$ %s\n' "$*"; "$@"; }

logs='sample_logs/hipblaslt/*.log sample_logs/hipblaslt/*.txt sample_logs/miopen/*.log sample_logs/miopen/*.txt'
tuned='sample_logs/tunableop/*.csv sample_logs/tunableop/*.log sample_logs/tunableop/torch2.5/*.csv'
printf '\n$ logparse ingest %s \\\n    %s --run demo\n' "$logs" "$tuned"
logparse ingest $logs $tuned --run demo
# The job's machine: PyTorch and its libraries by the one file, MIOpen and the number of its CUs by the other's name.
say logparse recommend --target sample_logs/tunableop/tunableop_results0.csv \
    --target sample_logs/miopen/gfx942130.HIP.3_4_0_7c1e0a9d2.ufdb.txt --out overrides -n 8
say logparse top --by time -n 5

# What MIOpen will read: a find-db record per problem, and the parameters that its tunable solver needs.
# Then the proof.  What a job logs after the tuning file was applied is made here: the same log with that file's indices.
made=$(dirname overrides/*/apply.sh)
tuning=$made/hipblaslt_tuning.txt
say cut -c -150 "$made"/*.ufdb.txt "$made"/*.udb.txt
log=sample_logs/hipblaslt/hipblaslt_rank0_4242.log
say logparse lint "$tuning" "$made/tunableop_results0.csv" "$made"/*.ufdb.txt "$made"/*.udb.txt
say logparse coverage "$tuning" --run demo
printf '\n$ logparse ingest - --run before < %s; sed … %s | logparse ingest - --run after\n' "$log" "$log"
logparse ingest - --run before < "$log"
sed 's/index 91033/index 91077/; s/index 91104/index 91131/; s/index 91201/index 91266/; s/index 104002/index 104377/' \
    "$log" | logparse ingest - --run after
say logparse verify before after "$tuning"
# These logs hold no times, so a gate must not pass: exit code 4.
say logparse diff before after --overrides "$tuning" -n 5 || [ $? = 4 ]
say logparse merge sample_logs/tunableop/tunableop_results0.csv "$made/tunableop_results0.csv" \
    --gpus 2 --out overrides/merged
say logparse convert sample_logs/tunableop/tunableop_results0.csv --to hipblaslt --out overrides/converted
say logparse export --run demo --as bench -n 3 --out overrides/problems

# Where a torch is installed already, a few problems are measured too: on a GPU the job's own, on a CPU smaller ones.
case $(python3 -c 'import torch; print("gpu" if torch.cuda.is_available() else "cpu")' 2>/dev/null || echo none) in
gpu) say logparse replay --top 3 --budget 60s ;;
cpu)
    small="${LOGPARSE_STORE:-logparse-store}-small"
    printf '\ntorch sees no GPU: the plain GEMMs of a log, every size divided by 16, are measured on this CPU\n'
    grep '^hipblaslt-bench.* --batch_count 1 ' sample_logs/hipblaslt/hipblaslt_rank0_4242.log | sed 's/bf16_r/f32_r/g' |
        awk '{ for (i = 1; i < NF; i++) if ($i ~ /^(-[mnk]|--ld[abcd])$/) $(i + 1) /= 16; print }' |
        logparse ingest - --store "$small" --run small
    say logparse replay --store "$small" --device cpu --top 3 --budget 60s
    ;;
*) printf '\nno torch here, so nothing is measured; to add it: .venv/bin/pip install torch, then again make demo\n' ;;
esac
