#!/bin/bash
# Builds rbt for arm64 (aarch64-unknown-linux-gnu) on x86_64 as a static binary, and prints the path of the binary.
#
#   build.sh [CARGO-ARGUMENT...]    Build rbt. `--release` builds the released binary, and `--profile emulated` builds one for
#                                   emulated machines.
#   build.sh -x COMMAND...          Run a command in the environment of the build, for example -x cargo test --no-run.
#
# Debian's cross compiler, which `tests/setup.sh arm64` installs, includes the C and C++ libraries. The other libraries come from
# Debian's arm64 packages. The script unpacks them in VM_CACHE (see tests/vm/vm-fetch.sh) without installing them, so the state of
# apt and dpkg does not change. A wrapper runs the x86_64 llvm-config, and replaces the directories in its output with the
# unpacked ones.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
cache=${VM_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/rbt-vm}/arm64
target=aarch64-unknown-linux-gnu
gnu=aarch64-linux-gnu
libraries='llvm-19-dev libpolly-19-dev libzstd-dev zlib1g-dev libelf-dev libffi-dev'
die() { echo "build.sh: $*" >&2; exit 1; }
# shellcheck source=tests/vm/apt.sh
. "$here/../vm/apt.sh"

# Unpacks the packages of the list. If the list changes, it unpacks them again.
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

# Writes a replacement for llvm-config. It prints the output of this machine's llvm-config with the directories of the arm64
# libraries.
llvm_config() {
    local to=$cache/prefix/bin/llvm-config
    mkdir -p "${to%/*}"
    # Write the file outside of the directory first, because the build checks the directory for changes.
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
    # The compiler's -print-file-name also searches the directory of -B.
    export "CFLAGS_$lower=-I$include -I$include/$gnu -B$lib" "CXXFLAGS_$lower=-I$include -I$include/$gnu -B$lib"
    # Use the linker that rustc includes, as for x86_64. It supports all processors.
    lld=$(rustc --print sysroot)/lib/rustlib/$(rustc -vV | sed -n 's/^host: //p')/bin/gcc-ld
    export "CARGO_TARGET_${upper}_LINKER=$gnu-gcc"
    export "CARGO_TARGET_${upper}_RUSTFLAGS=-Clink-arg=-fuse-ld=lld -Clink-arg=-B$lld"
    # Do not use the libraries of this machine.
    export PKG_CONFIG_ALLOW_CROSS=1 PKG_CONFIG_LIBDIR=$lib/pkgconfig PKG_CONFIG_SYSROOT_DIR=$cache/sysroot
    export CARGO_BUILD_TARGET=$target
}

for tool in $gnu-gcc $gnu-g++ cargo rustc; do command -v $tool >/dev/null || die "$tool is not installed (run tests/setup.sh arm64)"; done
[[ -d $(rustc --print sysroot)/lib/rustlib/$target ]] || die "rustc has no target $target (run rustup target add $target)"
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
