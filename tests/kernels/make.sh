#!/bin/bash
# Regenerates the snapshots of four kernels, for `rbt check one-liners/ --against tests/kernels`. The snapshots contain only the
# facts that the saved scripts need, so run it after a change to a script that needs other facts. The kernels are rows of
# tests/vm/kernels, and none of them has to run.
#
#   tests/kernels/make.sh [RBT]     RBT is the binary to use (default: target/release/rbt, else target/debug/rbt).
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
root=$PWD
rbt=$(realpath "${1:-$(ls target/release/rbt target/debug/rbt 2>/dev/null | head -1)}")
[ -x "$rbt" ] || { echo "make.sh: no rbt binary: build rbt or name a binary" >&2; exit 1; }
cache=${VM_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/rbt-vm}
for kernel in 6.1 6.12 7.2 arm64-6.12; do
    to=tests/kernels/$kernel.rbts more=()
    # The snapshot of the other architecture is stored separately, and also covers the scripts about architectures.
    case $kernel in arm64-*) to=tests/arm64/${kernel#arm64-}.rbts more=(--for "$root/tests/arm64/scripts") ;; esac
    read -r glob suites < <(awk -v k=$kernel '$1 == k { $1 = ""; print }' tests/vm/kernels)
    newest() { find "$cache/kernels" -maxdepth 1 -name "$glob" 2>/dev/null | sort -V | tail -1; }
    [ -n "$(newest)" ] || VM_SUITES=$suites tests/vm/vm-fetch.sh kernel "$glob"
    # Run in the kernel's directory, because the snapshot records the path of its source.
    (cd "$(newest)" && "$rbt" snapshot -q --from-package . --for "$root/one-liners" ${more[@]+"${more[@]}"} -o "$root/$to")
done
ls -l tests/kernels/*.rbts tests/arm64/*.rbts
