#!/bin/bash
# Builds rbt for arm64 (aarch64-unknown-linux-gnu) on x86_64, as one static file, and prints the file's name.
#
#   build.sh [CARGO-ARGUMENT...]    `--release` makes the file that is released, `--profile emulated` one for emulated machines
#   build.sh -x COMMAND...          runs a command with what the build has in its environment: -x cargo test --no-run
#
# Debian's cross compiler (tests/setup.sh arm64 installs it) has the C and C++ libraries. All others come from Debian's arm64
# packages, which are unpacked below VM_CACHE (see tests/vm/vm-fetch.sh) and not installed: apt and dpkg stay as they are.
# LLVM's own questions go to the x86_64 llvm-config, whose answers name the unpacked folders.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
cache=${VM_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/rbt-vm}/arm64
target=aarch64-unknown-linux-gnu
gnu=aarch64-linux-gnu
libraries='llvm-19-dev libpolly-19-dev libzstd-dev zlib1g-dev libelf-dev libffi-dev'
die() { echo "build.sh: $*" >&2; exit 1; }
# shellcheck source=tests/vm/apt.sh
. "$here/../vm/apt.sh"

# The packages that the list names, unpacked; again when the list changes.
sysroot() {
    local to=$cache/sysroot work deb
    [[ $(cat "$to/packages" 2>/dev/null) == "$libraries" ]] && return 0
    echo "build.sh: unpacking $libraries (arm64) into $to" >&2
    work=$(mktemp -d "${TMPDIR:-/tmp}/arm64.XXXXXX")
    (
        trap 'rm -rf "$work"' EXIT
        # shellcheck disable=SC2046
        apt_for "$cache/apt" arm64 $(own_suites)
        cd "$work"
        # shellcheck disable=SC2086
        apt-get -q download $libraries >apt.log 2>&1 || { tail -5 apt.log >&2; exit 1; }
        rm -rf "$to"
        mkdir -p "$to"
        for deb in *.deb; do dpkg-deb -x "$deb" "$to"; done
    )
    echo "$libraries" >"$to/packages"
}

# What stands for LLVM's configuration: the answers of this machine's, with the folders of the other's libraries.
llvm_config() {
    local to=$cache/prefix/bin/llvm-config
    mkdir -p "${to%/*}"
    # beside the folder, which is looked at for changes
    cat >"$cache/llvm-config.new" <<END
#!/bin/sh
out=\$(/usr/lib/llvm-19/bin/llvm-config "\$@") || exit
printf '%s\n' "\$out" | sed 's,/usr/lib/llvm-19,$cache/sysroot&,g; s,/usr/lib/[^ ]*/lib\([a-z0-9]*\)\.so,-l\1,g'
END
    chmod +x "$cache/llvm-config.new"
    cmp -s "$cache/llvm-config.new" "$to" || cp -p "$cache/llvm-config.new" "$to"
    rm "$cache/llvm-config.new"
}

surroundings() {
    local lib=$cache/sysroot/usr/lib/$gnu include=$cache/sysroot/usr/include lld
    local upper=AARCH64_UNKNOWN_LINUX_GNU lower=aarch64_unknown_linux_gnu
    export LLVM_SYS_191_PREFIX=$cache/prefix
    export "CC_$lower=$gnu-gcc" "CXX_$lower=$gnu-g++" "AR_$lower=$gnu-ar"
    # -B is where -print-file-name looks too
    export "CFLAGS_$lower=-I$include -I$include/$gnu -B$lib" "CXXFLAGS_$lower=-I$include -I$include/$gnu -B$lib"
    # the linker that rustc brings, as for x86_64: it links for all processors
    lld=$(rustc --print sysroot)/lib/rustlib/$(rustc -vV | sed -n 's/^host: //p')/bin/gcc-ld
    export "CARGO_TARGET_${upper}_LINKER=$gnu-gcc"
    export "CARGO_TARGET_${upper}_RUSTFLAGS=-Clink-arg=-fuse-ld=lld -Clink-arg=-B$lld"
    # nothing of this machine's libraries
    export PKG_CONFIG_ALLOW_CROSS=1 PKG_CONFIG_LIBDIR=$lib/pkgconfig PKG_CONFIG_SYSROOT_DIR=$cache/sysroot
    export CARGO_BUILD_TARGET=$target
}

for tool in $gnu-gcc $gnu-g++ cargo rustc; do command -v $tool >/dev/null || die "no $tool (tests/setup.sh arm64)"; done
[[ -d $(rustc --print sysroot)/lib/rustlib/$target ]] || die "rustc has no $target (rustup target add $target)"
sysroot
llvm_config
surroundings
cd "$here/../.."
if [[ ${1:-} == -x ]]; then
    shift
    exec "$@"
fi
cargo build --bin rbt "$@" >&2
profile=debug
all=" $* "
case $all in
    *' --release '*) profile=release ;;
    *' --profile '*) profile=${all#*--profile } profile=${profile%% *} ;;
esac
echo "${CARGO_TARGET_DIR:-target}/$target/$profile/rbt"
