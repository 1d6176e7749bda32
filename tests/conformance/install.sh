#!/bin/bash
# Unpacks the real host libraries of ROCm 7.2.4 (hipBLASLt, MIOpen, rocBLAS) from Debian's
# experimental suite into DIR and compiles the virtual GPU beside them.  Nothing is installed on the machine.
#
#   install.sh DIR      about 80 s, 710 MB to fetch, 2.5 GB on disk; a second call compiles the virtual GPU only
#
# Needs root (for apt), g++, apt and Debian's keyring.  The mirror is DEBIAN_MIRROR, else the first of apt's sources on
# this machine that has both suites.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
mkdir -p "${1:?usage: install.sh DIR}"
dir=$(cd "$1" && pwd)
libraries="libhipblaslt1 libmiopen1 librocblas5 libamdhip64-7"
headers="libamdhip64-dev libhipblaslt-dev libhipblas-common-dev"

# The archives of apt's sources, in any of its formats, also where its lists were never fetched.
sources() {
    apt-get --print-uris update | sed -n "s|^'\(.*\)/dists/.*|\1|p" | awk '!seen[$0]++'
}

# Writes the sources and fetches their lists.
suites_of() {
    local suite
    for suite in sid experimental; do
        echo "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $1 $suite main"
    done >"$dir/apt/etc/sources.list"
    apt-get -qq -o APT::Update::Error-Mode=any update
}

fetch_lists() {
    local mirror candidates=${DEBIAN_MIRROR:-$(sources)}
    export APT_CONFIG="$dir/apt/apt.conf"
    for mirror in $candidates; do
        suites_of "$mirror" && return
    done
    echo "install.sh: none of '${candidates//$'\n'/ }' has Debian's sid and experimental: set DEBIAN_MIRROR" >&2
    return 1
}

unpack() {
    local deb
    mkdir -p "$dir"/apt/{etc,lists/partial,cache/archives/partial} "$dir"/{root,headers}
    : >"$dir/apt/status"
    cat >"$dir/apt/apt.conf" <<CONF
Dir::Etc::sourcelist "$dir/apt/etc/sources.list";
Dir::Etc::sourceparts "/dev/null";
Dir::State::lists "$dir/apt/lists";
Dir::State::status "$dir/apt/status";
Dir::Cache "$dir/apt/cache";
APT::Sandbox::User "root";
APT::Install-Recommends "false";
CONF
    fetch_lists
    # shellcheck disable=SC2086  # lists of packages
    apt-get -qq -y --download-only -t experimental install libc6 $libraries
    # Two are as large as all the others together: both are unpacked at once, without what is for other GPUs.  hipBLASLt
    # needs all of its files: without some it crashes at a row whose index it does not know.
    find "$dir/apt/cache/archives" -name '*.deb' -print0 | sort -z | xargs -0 -P 2 -n 1 bash -c '
        left=(--exclude "*gfx[18]*" --exclude "*gfx90[068]*")
        case $1 in *hipblaslt*) left=() ;; esac
        dpkg --fsys-tarfile "$1" | tar -x -C "$0" "${left[@]}"' "$dir/root"
    (
        cd "$dir/apt/cache"
        # shellcheck disable=SC2086
        apt-get -qq download -t experimental $headers
        for deb in *-dev_*.deb; do dpkg -x "$deb" "$dir/headers"; done
        for deb in archives/lib{hipblaslt,miopen,rocblas,amdhip64}*.deb; do
            dpkg-deb -W --showformat='${Package} ${Version}\n' "$deb"
        done
    ) >"$dir/versions"
    rm -rf "$dir/apt/cache"
    # Bindings look for the libraries without their version.
    for name in hipblaslt:1 MIOpen:1 amdhip64:7 rocblas:5; do
        ln -sf "lib${name%:*}.so.${name#*:}" "$dir/root/usr/lib/x86_64-linux-gnu/lib${name%:*}.so"
    done
    touch "$dir/unpacked"
}

exec 9>"$dir/lock"
flock 9
[ -e "$dir/unpacked" ] || unpack
newest=$(ls -t "$here"/virtual_gpu/* | head -1)
if [ ! "$dir/virtual_gpu.so" -nt "$newest" ]; then
    g++ -std=c++17 -O2 -ftree-vectorize -Wall -fPIC -shared -static-libstdc++ -static-libgcc -D__HIP_PLATFORM_AMD__ \
        -isystem "$dir/headers/usr/include" "$here/virtual_gpu/gpu.cpp" -o "$dir/virtual_gpu.so.new"
    mv "$dir/virtual_gpu.so.new" "$dir/virtual_gpu.so"
fi
