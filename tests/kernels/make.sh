#!/bin/bash
# Writes anew what the saved scripts ask of four kernels, for `rbt check one-liners/ --against tests/kernels`: needed when a
# script begins to ask for something else. The kernels are rows of tests/vm/kernels; none of them has to run.
#
#   tests/kernels/make.sh [RBT]     RBT: the program to do it with (default: target/release/rbt, else target/debug/rbt)
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
root=$PWD
rbt=$(realpath "${1:-$(ls target/release/rbt target/debug/rbt 2>/dev/null | head -1)}")
[ -x "$rbt" ] || { echo "make.sh: build rbt first, or name it" >&2; exit 1; }
cache=${VM_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/rbt-vm}
for kernel in 6.1 6.12 7.2 arm64-6.12; do
    to=tests/kernels/$kernel.rbts more=()
    # its processor is another: apart, with scripts that ask about that
    case $kernel in arm64-*) to=tests/arm64/${kernel#arm64-}.rbts more=(--for "$root/tests/arm64/scripts") ;; esac
    read -r glob suites < <(awk -v k=$kernel '$1 == k { $1 = ""; print }' tests/vm/kernels)
    newest() { find "$cache/kernels" -maxdepth 1 -name "$glob" 2>/dev/null | sort -V | tail -1; }
    [ -n "$(newest)" ] || VM_SUITES=$suites tests/vm/vm-fetch.sh kernel "$glob"
    # from within the folder: a snapshot tells what it was made from
    (cd "$(newest)" && "$rbt" snapshot -q --from-package . --for "$root/one-liners" ${more[@]+"${more[@]}"} -o "$root/$to")
done
ls -l tests/kernels/*.rbts tests/arm64/*.rbts
