#!/bin/bash
# Writes src/startup/runner_functions.txt, the functions that a start of rbt-run runs. It runs as root.
#
#   start.sh RUNNER    RUNNER is an rbt-run of the profile `runner` that is not stripped:
#                      CARGO_PROFILE_RUNNER_STRIP=none cargo build --profile runner --bin rbt-run
#
# RBT names the rbt that traces it (default: target/debug/rbt).
set -euo pipefail
[[ $# == 1 && -x $1 ]] || { sed -n '2,7s/^# \{0,1\}//p' "$0" >&2; exit 2; }
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
runner=$(realpath "$1")
rbt=${RBT:-$root/target/debug/rbt}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

"$rbt" build -q -e 'begin { exit() }' -o "$work/bundle" 2>"$work/log"
# The sets by the beginnings or parts of names leave out functions of libraries in assembly, whose symbols are not all functions.
{
    echo 'config = { max_probes = 100000 }'
    for part in '*3rbt*' '*clap*' '*core*' '*alloc*' '*3std*' '*serde*' '*hashbrown*' 'bpf_*' 'btf_*' 'libbpf_*'; do
        echo "uprobe:$runner:$part,"
    done | sed '$s/,$//'
    echo '{ @[func] = count(); }'
} >"$work/functions.bt"
"$rbt" -q -f json "$work/functions.bt" -c "$runner -q $work/bundle" >"$work/called" 2>>"$work/log" || { cat "$work/log" >&2; exit 1; }
python3 - "$work/called" "$runner" >"$work/start" <<'END'
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
print("# The functions that a start of rbt-run runs, in the form of functions.txt. `tests/release/start.sh` writes this file.")
print("\n".join(sorted(rows)))
END
(($(wc -l <"$work/start") > 500)) || { echo 'start.sh: too few functions' >&2; exit 1; }
cp "$work/start" "$root/src/startup/runner_functions.txt"
