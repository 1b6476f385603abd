#!/bin/bash
# Writes src/startup/runner_functions.txt, the functions that a start of a runner runs. It runs as root.
#
#   start.sh RUNNER...  Each RUNNER is an rbt-run or rbt-run-small of the profile `runner` that is not stripped:
#                       CARGO_PROFILE_RUNNER_STRIP=none cargo build --profile runner --bin rbt-run --bin rbt-run-small
#
# RBT names the rbt that traces it (default: target/debug/rbt).
set -euo pipefail
[[ $# -ge 1 && -x $1 ]] || { sed -n '2,7s/^# \{0,1\}//p' "$0" >&2; exit 2; }
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
rbt=${RBT:-$root/target/debug/rbt}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# A script without probes, one whose probes are system calls, and one with a map and an interval.
"$rbt" build -q -e 'begin { exit() }' -o "$work/once" 2>"$work/log"
"$rbt" build -q opensnoop -o "$work/calls" 2>>"$work/log"
"$rbt" build -q -e 'interval:s:1 { exit() } rawtracepoint:sched_switch { @[comm] = count(); @t = hist(pid) }' -o "$work/maps" 2>>"$work/log"
for runner; do
    runner=$(realpath "$runner")
    # The functions of Rust and of libbpf. Other libraries are in assembly in part, where symbols are not all functions.
    {
        echo 'config = { max_probes = 100000 }'
        for part in '_R*' '_ZN*' 'bpf_*' 'btf_*' 'libbpf_*'; do
            echo "uprobe:$runner:$part,"
        done | sed '$s/,$//'
        echo '{ @[func] = count(); }'
    } >"$work/functions.bt"
    for run in "$work/once" "$work/calls -c /bin/true" "$work/maps"; do
        "$rbt" -q -f json -o "$work/called" "$work/functions.bt" -c "$runner -q $run" >>"$work/log" 2>&1 || { cat "$work/log" >&2; exit 1; }
        cat "$work/called" >>"$work/called.$(basename "$runner")"
    done
done
for runner; do
    python3 - "$work/called.$(basename "$runner")" "$(realpath "$runner")" <<'END'
import collections, json, re, subprocess, sys

def symbols(*option):
    lines = subprocess.run(["nm", *option, sys.argv[2]], capture_output=True, text=True, check=True).stdout.splitlines()
    parts = (line.split(" ", 2) for line in lines)
    return [(address, name) for address, kind, name in parts if kind in "tTwW"]

def without_hash(name):
    return re.sub(r"::h[0-9a-f]{16}$", "", name)

def names(value):
    if isinstance(value, dict):
        for key, inner in value.items():
            yield key
            yield from names(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from names(inner)
    elif isinstance(value, str):
        yield value

called = {without_hash(name) for line in open(sys.argv[1]) if line.strip() for name in names(json.loads(line))}
mangled = collections.defaultdict(set)
for address, name in symbols():
    mangled[address].add(name)
rows = set()
for address, name in symbols("-C"):
    if without_hash(name) not in called:
        continue
    for symbol in mangled[address]:
        legacy = re.match(r"(_ZN.*17h)[0-9a-f]{16}E", symbol)
        rows.add(".text." + (legacy[1] + "*" if legacy else re.sub(r"Cs[0-9A-Za-z]+_", "Cs*_", symbol)))
print("\n".join(rows))
END
done | LC_ALL=C sort -u >"$work/rows"
{
    echo '# The functions that a start of a runner runs, in the form of functions.txt. `tests/release/start.sh` writes this file.'
    cat "$work/rows"
} >"$work/start"
(($(wc -l <"$work/start") > 500)) || { echo 'start.sh: too few functions' >&2; exit 1; }
cp "$work/start" "$root/src/startup/runner_functions.txt"
