#!/bin/bash
# Runs the virtual machine's cases on several kernels and prints a table: a line per case, a
# column per kernel, with "ok", "FAIL" or "-" (skipped; the reasons follow the table).
#
#   matrix.sh [-f] [-k 'GLOB GLOB ...'] [-o FILE] [FILTER]
#
#   -k GLOBS  kernels' releases, by globs (default: those of the list below)
#   -f        fetch them first (vm-fetch.sh; needs apt)
#   -o FILE   the table goes there too
#   FILTER    part of a case's name: kprobe::, fentry::wildcard (default: all)
#
# MATRIX_CARGO  what to give to cargo besides (default: --no-default-features --features dynamic-llvm)
# MATRIX_LOGS   a folder to keep each kernel's own log in
# The status is 1 where a case failed.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
cd "$here/../.."

# glob, and the suites of Debian that have it beside this machine's own
list='5.10.*-cloud-amd64 bullseye-security
6.1.0-*-cloud-amd64
6.12.*deb12-cloud-amd64
6.18.*-cloud-amd64 trixie-backports
7.2.*-cloud-amd64 trixie-backports'

fetch= table= kernels=
while getopts :fk:o:h o; do
    case $o in
        f) fetch=1 ;;
        k) kernels=$OPTARG ;;
        o) table=$OPTARG ;;
        *) sed -n '2,/^set/s/^# \{0,1\}//p' "$0" | head -n -1 >&2; exit 2 ;;
    esac
done
shift $((OPTIND - 1))
filter=${1:-}

set -f # globs are for kernels, not for files
[[ -n $kernels ]] || kernels=$(cut -d' ' -f1 <<<"$list")
if [[ -n $fetch ]]; then
    for k in $kernels; do
        suites=$(awk -v k="$k" '$1 == k { print $2 }' <<<"$list")
        VM_SUITES=$suites tests/vm/vm-fetch.sh kernel "$k" >&2 || echo "matrix: no kernel for $k" >&2
    done
fi

logs=${MATRIX_LOGS:-$(mktemp -d)}
mkdir -p "$logs"
cargo=(cargo test ${MATRIX_CARGO:---no-default-features --features dynamic-llvm} --test cases)
"${cargo[@]}" --no-run >&2
names=()
for k in $kernels; do
    # as the harness names it: the first two numbers
    name=$(cut -d. -f1,2 <<<"$k" | tr -d '*')
    names+=("$name")
    echo "matrix: $k" >&2
    RBT_TEST_KERNEL=$k "${cargo[@]}" -- "vm-${name%-}::$filter" >"$logs/$name.log" 2>&1 || true
done

awk -v names="${names[*]}" '
    BEGIN { n = split(names, kernel, " ") }
    FNR == 1 { file++ }
    $1 == "test" && $2 ~ /^vm-/ {
        case_ = $2
        sub(/^vm-[^:]*::/, "", case_)
        if (!(case_ in seen)) { seen[case_] = 1; order[++cases] = case_ }
        verdict = / \.\.\. ok/ ? "ok" : / \.\.\. FAILED/ ? "FAIL" : "-"
        table[case_, file] = verdict
        count[file, verdict]++
        if (verdict == "-") {
            why = $0
            sub(/.*\(/, "", why); sub(/\)$/, "", why)
            reasons[kernel[file] ": " why]++
        }
        if (verdict == "FAIL") failed = 1
    }
    END {
        printf "%-44s", "case"
        for (i = 1; i <= n; i++) printf " %6s", kernel[i]
        print ""
        for (c = 1; c <= cases; c++) {
            printf "%-44s", order[c]
            for (i = 1; i <= n; i++) printf " %6s", (order[c], i) in table ? table[order[c], i] : "?"
            print ""
        }
        for (v = 1; v <= 3; v++) {
            word = v == 1 ? "ok" : v == 2 ? "FAIL" : "-"
            printf "%-44s", word == "-" ? "skipped" : word == "ok" ? "passed" : "failed"
            for (i = 1; i <= n; i++) printf " %6d", count[i, word]
            print ""
        }
        for (r in reasons) print r " (" reasons[r] ")" | "sort"
        close("sort")
        exit failed
    }' $(for name in "${names[@]}"; do echo "$logs/$name.log"; done) | tee ${table:+"$table"}
exit "${PIPESTATUS[0]}"
