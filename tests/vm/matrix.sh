#!/bin/bash
# Runs the cases for virtual machines on the kernels of tests/vm/kernels, one kernel at a time. It prints a table with a row for
# each case and a column for each kernel. A cell is "ok", "FAIL", or "-" for a skipped case. The reasons for skipped cases and a
# table by feature follow.
#
#   matrix.sh [-f] [-s] [-r] [-k 'NAME NAME ...'] [-l DIRECTORY] [FILTER]
#
#   -k NAMES      Use these kernels (default: all that are unpacked).
#   -f            Fetch or build missing kernels (vm-fetch.sh, vm-build-kernel.sh). This needs apt.
#   -l DIRECTORY  Keep the log of each kernel in this directory (default: target/matrix).
#   -s            Run no cases, and summarize the existing logs.
#   -r            Replace the table by feature in tests/vm/matrix.md. The columns of other kernels stay.
#   FILTER        Run only the cases whose names contain this text, such as kprobe:: or fentry::wildcard (default: all).
#
# MATRIX_CARGO       additional arguments for cargo (default: --no-default-features --features dynamic-llvm)
# RBT_TEST_MACHINES  number of virtual machines that run at the same time (default: 1)
# RBT_TEST_BIN       an rbt binary to use instead of the one that cargo builds. A release build takes half the time in emulation.
#
# For arm64 kernels, tests/arm64/build.sh builds rbt and the tests with optimization. The exit status is 1 if a case fails.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
cd "$here/../.."
cache=${VM_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/rbt-vm}
list=$(grep -v '^#' "$here/kernels")

fetch='' kernels='' logs=target/matrix run=1 report=''
while getopts :fk:l:srh o; do
    case $o in
        f) fetch=1 ;;
        k) kernels=$OPTARG ;;
        l) logs=$OPTARG ;;
        s) run='' ;;
        r) report=1 ;;
        *) sed -n '2,/^set/s/^# \{0,1\}//p' "$0" >&2; exit 2 ;;
    esac
done
shift $((OPTIND - 1))
filter=${1:-}

# The features. Each line has a name and a pattern for the names of the feature's cases. A case may belong to several features.
features='kprobe, kretprobe|^kprobe::(entry|aliases|numbered|named|arguments|return|declared|registers|amid|address|several|pid)
wildcards, a link for each|^kprobe::wildcard
wildcards, one link for all (kprobe_multi)|^kprobe::many_by_one_link
entry and return in one program (kprobe.session)|^kprobe::session
functions of modules|::module
override()|^kprobe::override_takes_effect
fentry, fexit|^fentry::(entry|aliases|arguments|return|function|wildcard|declared|pid)
BPF programs as targets|^fentry::bpf_program
kprobes as trampolines, by themselves|^lowering::k
tracepoint|^probes::tracepoint
rawtracepoint|^probes::rawtracepoint
uprobe, uretprobe|^probes::(uprobe|uretprobe)
usdt|^usdt::
interval, profile|^probes::(interval|profile)
software|^probes::software
watchpoint|^watchpoint::
iter|^iter::
self:signal|^self::
stacks of the kernel|^(stacks::kstack|(kprobe|fentry)::stacks)
stacks of processes|^stacks::ustack
loops over numbers|^loops::(range|while|no_turns)
loops over maps|^loops::map
maps, as they grow and are cleared|^(maps|moments)::
--cgroup|^cgroup::
options, output, reports|^(life|output|json|reports|formats|missing|unhit)::'

has() { compgen -G "$cache/kernels/$1/vmlinux" >/dev/null; }

get() { # GLOB SOURCE...
    local glob=$1
    shift
    if [[ ${1:-} == build ]]; then
        tests/vm/vm-build-kernel.sh "$2"
    else
        tests/vm/vm-fetch.sh kernel "$glob" || VM_SUITES="$*" tests/vm/vm-fetch.sh kernel "$glob"
    fi
}

names=()
while read -r name glob source; do
    [[ -z $kernels || " $kernels " == *" $name "* ]] || continue
    if [[ -n $fetch ]] && ! has "$glob"; then
        # shellcheck disable=SC2086
        get "$glob" $source >&2 || true
    fi
    if [[ -n $run ]] && ! has "$glob"; then
        echo "matrix: no kernel $name ($glob); -f fetches it" >&2
    elif [[ -n $run || -s $logs/$name.log ]]; then
        names+=("$name")
    fi
done <<<"$list"
((${#names[@]})) || { echo "matrix: nothing to do" >&2; exit 1; }

mkdir -p "$logs"
if [[ -n $run ]]; then
    # shellcheck disable=SC2206
    cargo=(cargo test ${MATRIX_CARGO:---no-default-features --features dynamic-llvm} --test vm)
    "${cargo[@]}" --no-run >&2
    if [[ " ${names[*]}" == *' arm64-'* ]]; then
        build=$(tests/arm64/build.sh -x cargo test --profile emulated --test vm --no-run 2>&1) || { echo "$build" >&2; exit 1; }
        RBT_TEST_ARM64=$PWD/$(sed -n 's/.*Executable tests\/vm\.rs (\(.*\))$/\1/p' <<<"$build")
        export RBT_TEST_ARM64
    fi
    export RBT_TEST_MACHINES=${RBT_TEST_MACHINES:-1} VM_TIMEOUT=${VM_TIMEOUT:-5400}
    for name in "${names[@]}"; do
        echo "matrix: $name" >&2
        RBT_TEST_KERNEL=$name "${cargo[@]}" -- --test-threads "$RBT_TEST_MACHINES" "vm-$name::$filter" \
            >"$logs/$name.log" 2>"$logs/$name.err" || true
    done
fi

# Sort the kernels by version. Kernels that vm-build-kernel.sh builds are last.
mapfile -t names < <(printf '%s\n' "${names[@]}" | sort -V)

# Prints the table by cases or by features. The argument is "cases" or "features".
table() {
    local how=$1
    awk -v how="$how" -v names="${names[*]}" -v features="$features" '
        BEGIN {
            n = split(names, kernel, " ")
            rows = split(features, row, "\n")
            for (r = 1; r <= rows; r++) { split(row[r], part, "|"); label[r] = part[1]; pattern[r] = substr(row[r], length(part[1]) + 2) }
        }
        FNR == 1 { file++ }
        $1 == "test" && $2 ~ /^vm-/ && / \.\.\. / {
            name = $2
            sub(/^vm-[^:]*::/, "", name)
            if (!(name in seen)) { seen[name] = 1; order[++cases] = name }
            verdict = / \.\.\. ok/ ? "ok" : / \.\.\. FAILED/ ? "FAIL" : "-"
            table[name, file] = verdict
            count[file, verdict]++
            for (r = 1; r <= rows; r++) if (name ~ pattern[r]) by[r, file, verdict]++
            if (verdict == "-") {
                why = $0
                sub(/.*\(/, "", why); sub(/\)$/, "", why)
                reasons[kernel[file] ": " why]++
            }
            if (verdict == "FAIL") failed = 1
        }
        function cell(r, i,    good, bad, none) {
            good = by[r, i, "ok"] + 0; bad = by[r, i, "FAIL"] + 0; none = by[r, i, "-"] + 0
            if (bad) return good " of " good + bad
            return good ? "yes" : none ? "–" : ""
        }
        END {
            if (how == "features") {
                printf "| Linux |"; for (i = 1; i <= n; i++) printf " %s |", kernel[i]
                printf "\n|---|"; for (i = 1; i <= n; i++) printf "---|"
                print ""
                for (r = 1; r <= rows; r++) {
                    line = "| " label[r] " |"; any = 0
                    for (i = 1; i <= n; i++) { c = cell(r, i); any = any || c != ""; line = line " " c " |" }
                    if (any) print line
                }
                printf "| cases passed (and skipped) |"
                for (i = 1; i <= n; i++) printf " %d (%d) |", count[i, "ok"], count[i, "-"]
                print ""
                exit failed
            }
            printf "%-52s", "case"
            for (i = 1; i <= n; i++) printf " %8s", kernel[i]
            print ""
            for (c = 1; c <= cases; c++) {
                printf "%-52s", order[c]
                for (i = 1; i <= n; i++) printf " %8s", (order[c], i) in table ? table[order[c], i] : "?"
                print ""
            }
            split("passed ok failed FAIL skipped -", word, " ")
            for (v = 1; v <= 6; v += 2) {
                printf "%-52s", word[v]
                for (i = 1; i <= n; i++) printf " %8d", count[i, word[v + 1]]
                print ""
            }
            for (r in reasons) print r " (" reasons[r] ")" | "sort -V"
            close("sort -V")
        }' $(for name in "${names[@]}"; do echo "$logs/$name.log"; done)
}

# Adds to the table by features NEW the columns of kernels that only the table OLD has.
all() { # NEW OLD
    local columns
    columns=$(printf '%s\n' "$1" "$2" | sed -n 's/^| Linux |//p' | tr -d ' ' | tr '|' '\n' | grep . | sort -Vu)
    awk -F ' *[|] *' -v columns="${columns//$'\n'/ }" '
        FNR == 1 { file++; delete name; for (i = 3; i < NF; i++) name[i] = $i }
        FNR > 2 {
            if (!($2 in seen)) { seen[$2] = 1; row[++rows] = $2 }
            for (i = 3; i < NF; i++) if (!(($2, name[i]) in cell)) cell[$2, name[i]] = $i
        }
        END {
            n = split(columns, column, " ")
            printf "| Linux |"; for (i = 1; i <= n; i++) printf " %s |", column[i]
            printf "\n|---|"; for (i = 1; i <= n; i++) printf "---|"
            print ""
            last = "cases passed (and skipped)"
            for (r = 1; r <= rows + 1; r++) {
                if (r <= rows && row[r] == last) continue
                label = r > rows ? last : row[r]
                printf "| %s |", label
                for (i = 1; i <= n; i++) printf " %s |", cell[label, column[i]]
                print ""
            }
        }' <(printf '%s\n' "$1") <(printf '%s\n' "$2")
}

table cases
echo
status=0
short=$(table features) || status=1
printf '%s\n' "$short"
if [[ -n $report ]]; then
    all "$short" "$(sed -n '/^<!-- matrix -->$/,/^<!-- end of matrix -->$/{/^|/p}' "$here/matrix.md")" >"$logs/table.md"
    sed -i -e '/^<!-- matrix -->$/,/^<!-- end of matrix -->$/{/^<!--/!d}' -e "/^<!-- matrix -->$/r $logs/table.md" "$here/matrix.md"
fi
exit $status
