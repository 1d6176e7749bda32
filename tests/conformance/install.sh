#!/bin/bash
# Unpacks the real host libraries of ROCm 7.2.4 (hipBLASLt, MIOpen with its databases, rocBLAS) from Debian's
# experimental suite into DIR and compiles the virtual GPU beside them.  Nothing is installed on the machine.
#
#   install.sh DIR      about 90 s, 800 MB to fetch, 3.5 GB on disk; a second call compiles the virtual GPU only
#
# Needs root (chroot and apt's lists), g++, apt and Debian's keyring.  The mirror is the one that apt on this machine
# uses, else Debian's own; DEBIAN_MIRROR overrides both.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
mkdir -p "${1:?usage: install.sh DIR}"
dir=$(cd "$1" && pwd)
libraries="libhipblaslt1 libmiopen1 libmiopen-tests-data librocblas5 libamdhip64-7"
headers="libamdhip64-dev libhipblaslt-dev libhipblas-common-dev"

unpack() {
    local mirror=${DEBIAN_MIRROR:-} suite deb
    if [ -z "$mirror" ]; then
        mirror=$(apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' | grep -m1 -E '/debian/?$' || true)
    fi
    mkdir -p "$dir"/apt/{etc,lists/partial,cache/archives/partial} "$dir"/{root,headers}
    : >"$dir/apt/status"
    for suite in sid experimental; do
        echo "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg]" \
            "${mirror:-http://deb.debian.org/debian} $suite main"
    done >"$dir/apt/etc/sources.list"
    cat >"$dir/apt/apt.conf" <<CONF
Dir::Etc::sourcelist "$dir/apt/etc/sources.list";
Dir::Etc::sourceparts "/dev/null";
Dir::State::lists "$dir/apt/lists";
Dir::State::status "$dir/apt/status";
Dir::Cache "$dir/apt/cache";
APT::Sandbox::User "root";
APT::Install-Recommends "false";
CONF
    export APT_CONFIG="$dir/apt/apt.conf"
    apt-get -qq update
    # shellcheck disable=SC2086  # lists of packages
    apt-get -qq -y --download-only -t experimental install libc6 $libraries
    for deb in "$dir"/apt/cache/archives/*.deb; do dpkg -x "$deb" "$dir/root"; done
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

[ -e "$dir/unpacked" ] || unpack
newest=$(ls -t "$here"/virtual_gpu/* | head -1)
if [ ! "$dir/virtual_gpu.so" -nt "$newest" ]; then
    g++ -std=c++17 -O2 -ftree-vectorize -Wall -fPIC -shared -static-libstdc++ -static-libgcc -D__HIP_PLATFORM_AMD__ \
        -isystem "$dir/headers/usr/include" "$here/virtual_gpu/gpu.cpp" -o "$dir/virtual_gpu.so.new"
    mv "$dir/virtual_gpu.so.new" "$dir/virtual_gpu.so"
fi
