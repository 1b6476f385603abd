#!/bin/bash
# Measures how the memory of a run and the time to print grow with the number of processors, in emulated machines.
#
#   cpus.sh [RBT [CPUS...]]
#
# RBT is target/release/rbt by default, and CPUS are 1 2 16 64. Each row is a script in a machine with that many processors, on all of
# which its events occur: the memory of its maps and of rbt, the number of lines, and the time from the signal that ends the run to
# its end. In emulation, times show only whether the growth is out of proportion. VM_KERNEL and others are those of vmrun.sh.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
scripts=(
    'tracepoint:syscalls:sys_enter_getcwd { @[comm] = count(); }'
    'tracepoint:syscalls:sys_enter_getcwd { @ = hist(pid); }'
    'tracepoint:syscalls:sys_enter_getcwd { @[pid] = hist(pid); }'
    'tracepoint:syscalls:sys_enter_getcwd { @[kstack] = count(); }'
    'tracepoint:syscalls:sys_enter_getcwd { printf("%d %s\n", pid, comm); }'
    'config = { max_map_keys = 16384 } begin { for ($i : 0..10000) { @[$i] = count(); } } interval:s:1000 { }'
    'config = { max_map_keys = 16384 } begin { for ($i : 0..10000) { @[$i] = stats($i); } } interval:s:1000 { }'
)

# Is run in the machine.
measure() {
    local rbt=$1 cpus out pid maps rss start took
    cpus=$(nproc)
    out=$(mktemp -d)
    export RBT_CACHE=
    for script in "${scripts[@]}"; do
        "$rbt" -e "$script" > "$out/lines" 2> "$out/errors" &
        pid=$!
        until grep -q '^Attached' "$out/errors" "$out/lines" || ! kill -0 $pid 2> /dev/null; do sleep 0.2; done
        for ((cpu = 0; cpu < cpus; cpu++)); do taskset -c $cpu pwd -P > /dev/null; done
        sleep 1
        maps=$(cat /proc/$pid/fdinfo/* 2> /dev/null | awk '/^map_type/ { map = 1 } /^memlock/ && map { sum += $2; map = 0 } END { print sum / 1024 }' || true)
        rss=$(awk '/^VmHWM/ { print $2 / 1024 }' /proc/$pid/status) || { cat "$out/errors"; exit 1; }
        start=$EPOCHREALTIME
        kill -INT $pid
        wait $pid || cat "$out/errors"
        took=$(awk -v from="$start" -v to="$EPOCHREALTIME" 'BEGIN { print to - from }')
        printf '%4d %8.0f KiB %5.0f MiB %6d lines %6.2f s  %s\n' "$cpus" "$maps" "$rss" "$(wc -l < "$out/lines")" "$took" "$script"
    done
    rm -r "$out"
}

if [[ ${1:-} == --measure ]]; then
    measure "$2"
    exit
fi
rbt=$(realpath -- "${1:-$here/../../target/release/rbt}")
shift $(($# > 0))
echo 'CPUs      maps   memory'
for cpus in "${@:-1 2 16 64}"; do
    for n in $cpus; do
        VM_CPUS=$n VM_MEM=$((n > 16 ? 6 : 2))G VM_TIMEOUT=${VM_TIMEOUT:-1500} "$here/vmrun.sh" -- "$0" --measure "$rbt"
    done
done
