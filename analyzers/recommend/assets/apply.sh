# Makes the jobs of this shell use the override files beside this one.  Source it:  . ./apply.sh
#
# The files are for: @target@
# Where this machine differs, the script reports it, exports nothing and returns 1.  A fact that cannot be read is
# reported and not checked.  Works in sh, dash and bash.

_logparse_folder=''
if [ -n "${BASH_SOURCE:-}" ]; then
    _logparse_folder=$(CDPATH='' cd -- "$(dirname -- "$BASH_SOURCE")" && pwd)
fi
# Other shells do not report the path of a sourced file.
if [ -z "$_logparse_folder" ]; then
    _logparse_folder=@folder@
    [ -f "$_logparse_folder/apply.sh" ] || _logparse_folder=$PWD
fi

# What this machine is: one "NAME VALUE" per line, several where there are several GPUs.
_logparse_facts() (
    if command -v rocminfo > /dev/null 2>&1; then
        rocminfo 2> /dev/null | awk '
            $1 == "Name:" && $0 ~ /^  [^ ]/ { gpu = ($2 ~ /^gfx/); if (gpu) print "arch", $2 }
            /^  Compute Unit:/ && gpu { print "cu_count", $3 }'
    elif command -v nvidia-smi > /dev/null 2>&1; then
        nvidia-smi --query-gpu=compute_cap --format=csv,noheader 2> /dev/null | sed 's/\.//; s/^/arch sm_/'
    fi
    for python in python python3; do
        if command -v "$python" > /dev/null 2>&1 && "$python" -c 'import torch
def say(name, value):
    print(name, value)
say("pytorch_version", torch.__version__.partition("+")[0])
if torch.cuda.is_available():
    for i in range(torch.cuda.device_count()):
        p = torch.cuda.get_device_properties(i)
        gcn = getattr(p, "gcnArchName", "")
        say("arch", gcn.partition(":")[0] if gcn.startswith("gfx") else "sm_%d%d" % (p.major, p.minor))
        say("cu_count", p.multi_processor_count)
    try:
        validators = torch.cuda.tunable.get_validators()
    except Exception:
        validators = ()
    for key, value in validators:
        say("validator:" + key, value)
        if key == "HIPBLASLT_VERSION":
            number, dash, revision = value.partition("-")
            say("hipblaslt_version", number)
            say("hipblaslt_revision", revision)
        if key == "ROCBLAS_VERSION":
            say("rocblas_version", value)
try:
    import ctypes
    for path in {line.split()[-1] for line in open("/proc/self/maps") if "/libMIOpen.so" in line}:
        n = [ctypes.c_size_t() for _ in range(3)]
        if ctypes.CDLL(path).miopenGetVersion(*map(ctypes.byref, n)) == 0:
            say("miopen_version", ".".join(str(x.value) for x in n))
except Exception:
    pass' 2> /dev/null; then exit; fi
    done
    # Without PyTorch, which may bring libraries of its own, those of ROCm are the ones that run.
    include=${ROCM_PATH:-/opt/rocm}/include
    number() {
        n=$(sed -n "s/^ *# *define  *[A-Z]*_VERSION_$1  *//p" "$header" | head -n 1)
        echo "${n:-0}"
    }
    numbers() { echo "$(number MAJOR).$(number MINOR).$(number PATCH)"; }
    header=$include/hipblaslt/hipblaslt-version.h
    if [ -f "$header" ]; then
        echo "hipblaslt_version $(($(number MAJOR) * 100000 + $(number MINOR) * 100 + $(number PATCH)))"
        echo "hipblaslt_revision $(number TWEAK)"
    fi
    header=$include/miopen/version.h
    if [ -f "$header" ]; then echo "miopen_version $(numbers)"; fi
    header=$include/rocblas/internal/rocblas-version.h
    if [ -f "$header" ]; then echo "rocblas_version $(numbers).$(number TWEAK)"; fi
    exit 0
)

_logparse_check() (
    for file in @files@; do
        if ! [ -f "$_logparse_folder/$file" ]; then
            echo "apply.sh: not applied: $file is not in $_logparse_folder; source it in its own folder" >&2
            exit 1
        fi
    done
    here=$(_logparse_facts) || :
    fits=0
    unread=''
    guard() {
        found=$(printf '%s\n' "$here" | sed -n "s/^$1 //p" | sort -u)
        if [ -z "$found" ]; then
            unread="$unread, $1 $2"
        elif ! printf '%s\n' "$found" | grep -qxF -e "$2"; then
            echo "apply.sh: not applied: $1 is" $found "here, the files are for $2" >&2
            fits=1
        fi
    }
    @checks@
    [ -z "$unread" ] || echo "apply.sh: not checked, because it cannot be read here: ${unread#, }" >&2
    exit $fits
)

if ! _logparse_check; then
    unset -f _logparse_facts _logparse_check
    unset _logparse_folder
    return 1 2> /dev/null || exit 1
fi

@settings@
# For `logparse run`: what was exported.  A mark that cannot be written is left out.
if [ -n "${LOGPARSE_APPLIED:-}" ]; then
    { printf '%s\n' @mark@ >> "$LOGPARSE_APPLIED/applied_sh_$$"; } 2> /dev/null || :
fi
@caution@

unset -f _logparse_facts _logparse_check
unset _logparse_folder
