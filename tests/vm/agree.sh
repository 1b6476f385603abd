#!/bin/bash
# Compares the findings of `rbt check` for scripts with the behavior of kernels. It makes a snapshot of each kernel's package and
# checks each script against the snapshot. It then attaches the script briefly under that kernel, with `--dry-run` in a disposable
# virtual machine (vmrun.sh).
#
#   agree.sh [-k 'GLOB GLOB ...'] [-l DIRECTORY] [FILE.bt | FILE.scripts]...
#
#   -k    Use the kernels in VM_CACHE/kernels whose names match (default: all).
#   -l    Keep snapshots and logs in this directory (default: target/agree).
#
# Each line of FILE.scripts (default: agree.scripts) is a script. RBT names the binary (default: target/debug/rbt), and RBT_ARM64 the
# one for machines with arm64 kernels, which tests/arm64/build.sh builds.
# The table has a row for each kernel. It counts a script as "false ok" if check accepts it but the kernel rejects it, and as
# "false FAIL" in the opposite case. If check reports that it cannot determine a fact, the table counts a false ok in the column
# "with note" instead. A script that did not finish in time counts as "out of time". Each script with a disagreement is printed
# below the table. Machines run one at a time. agree.sh needs jq.
#
# Exit status: 0 if all scripts agree, 1 if some do not, 2 for invalid arguments.
set -euo pipefail -f
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(cd "$here/../.." && pwd)
cache=${VM_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/rbt-vm}
globs='*' logs=$root/target/agree
while getopts :k:l:h o; do
    case $o in
        k) globs=$OPTARG ;;
        l) logs=$OPTARG ;;
        *) sed -n '2,18s/^# \{0,1\}//p' "$0" >&2; exit 2 ;;
    esac
done
shift $((OPTIND - 1))
(($#)) || set -- "$here/agree.scripts"
mkdir -p "$logs"
logs=$(realpath "$logs")
rm -rf "$logs/scripts"
mkdir "$logs/scripts"
# Copy the binary, because a build may replace it during the run.
cp "${RBT:-$root/target/debug/rbt}" "$logs/rbt"
[[ -z ${RBT_ARM64:-} ]] || cp "$RBT_ARM64" "$logs/rbt-arm64"

# --- Write each script to a separate file.
n=0
for file; do
    if [[ $file == *.scripts ]]; then
        while IFS= read -r line; do
            [[ -z $line || $line == '#'* ]] && continue
            n=$((n + 1))
            printf '%s\n' "$line" >"$logs/scripts/$(printf %03d $n).bt"
        done <"$file"
    else
        n=$((n + 1))
        cp "$file" "$logs/scripts/$(printf %03d $n)-$(basename "$file")"
    fi
done

# --- The virtual machine runs this program. The kernel accepts a script if rbt exits with status 0.
cat >"$logs/attach.sh" <<'EOF'
cd "$1" || exit 2
rbt=./$2
for s in scripts/*.bt; do
    word=ok
    said=$(timeout "${AGREE_PATIENCE:-120}" "$rbt" --unsafe --dry-run "$s" 2>&1 >/dev/null) || { (($? == 124)) && word=late || word=FAIL; }
    printf '%s\t%s\t%s\n' "$(basename "$s")" "$word" "$(grep -m1 -E 'error|ERROR' <<<"${said:--}" | head -c 200)-"
done
EOF

one() { # KERNEL: writes a table with the columns script, check's verdict, note, the kernel's verdict, and its message
    local kernel=$1 dir=$cache/kernels/$1 binary=rbt
    [[ $kernel != *-arm64 ]] || binary=rbt-arm64
    (cd "$dir" && "$logs/rbt" snapshot -q --from-package . -o "$logs/$kernel.rbts") 2>"$logs/$kernel.snapshot" || return
    (cd "$logs" && ./rbt check scripts --against "$kernel.rbts" -f json) >"$logs/$kernel.json" 2>"$logs/$kernel.said" || true
    jq -r '.outcomes[] | [(.subject | sub(".*/"; "")), ({ok: "ok", warning: "ok", failed: "FAIL"}[.verdict] // "?"),
        (if any(.findings[]; .level != "error") then "note" else "-" end)] | @tsv' "$logs/$kernel.json" | sort >"$logs/$kernel.check"
    VM_TIMEOUT=${VM_TIMEOUT:-1500} "$here/vmrun.sh" -k "$kernel" -r "$logs" -- bash "$logs/attach.sh" "$logs" "$binary" >"$logs/$kernel.attach" 2>"$logs/$kernel.err" || true
    # A script that did not run before the timeout has no line.
    join -t $'\t' -a 1 -e late -o 0,1.2,1.3,2.2,2.3 "$logs/$kernel.check" <(sort "$logs/$kernel.attach") >"$logs/$kernel.table"
}

kernels=()
for glob in $globs; do
    while IFS= read -r k; do kernels+=("$k"); done < <(find "$cache/kernels" -mindepth 1 -maxdepth 1 -name "$glob" -printf '%f\n' | sort -V)
done
for kernel in "${kernels[@]}"; do one "$kernel"; done

# --- Print the table.
status=0
printf '%-36s %7s %6s %10s %10s %10s %11s\n' kernel scripts agree 'false ok' 'with note' 'false FAIL' 'out of time'
for kernel in "${kernels[@]}"; do
    [[ -s $logs/$kernel.table ]] || { echo "$kernel: no table, see $logs/$kernel.err" >&2; status=1; continue; }
    awk -F'\t' -v k="$kernel" '
        $2 == $4 { agree++ } $2 == "ok" && $4 == "FAIL" && $3 == "-" { ok++ } $2 == "ok" && $4 == "FAIL" && $3 != "-" { noted++ }
        $2 == "FAIL" && $4 == "ok" { fail++ } $4 == "late" { late++ } $2 == "?" { open++ }
        END { printf "%-36s %7d %6d %10d %10d %10d %11d%s\n", k, NR, agree, ok, noted, fail, late, open ? "   not checked: " open : ""; exit ok + fail > 0 }
    ' "$logs/$kernel.table" || status=1
done
for kernel in "${kernels[@]}"; do
    [[ -s $logs/$kernel.table ]] || continue
    while IFS=$'\t' read -r script word note real said; do
        [[ $word == "$real" || $real == late || $word$note == oknote ]] && continue
        printf '\n%s: check %s, kernel %s\n    %s\n' "$kernel" "$word" "$real" "$(head -c 150 "$logs/scripts/$script")"
        [[ $said == - ]] || echo "    ${said%-}"
    done <"$logs/$kernel.table"
done
exit $status
