#!/bin/bash
# Compares what `rbt check` says of scripts with what kernels do: for each kernel a snapshot is made of its package, each script is
# checked against it, and is then attached for a moment under that kernel (`--dry-run`, in a throw-away machine: vmrun.sh).
#
#   agree.sh [-k 'GLOB GLOB ...'] [-l FOLDER] [FILE.bt | FILE.scripts]...
#
#   -k    kernels by name below VM_CACHE/kernels (default: all that are there)
#   -l    where snapshots and logs are kept (default: target/agree)
#
# Of FILE.scripts (default: agree.scripts) each line is a script. RBT names the binary (default: target/debug/rbt).
# The table has a row for each script with a disagreement: "false ok" (check lets pass what the kernel refuses) and "false FAIL".
# A note of check's on what it cannot know makes an "ok" of it an "ok with a note", which is told apart; so is a script that the
# machine had no time for. Machines run one at a time. Needs jq.
# Exit code: 0 all agree, 1 some do not, 2 used wrongly.
set -euo pipefail -f
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(cd "$here/../.." && pwd)
cache=${VM_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/rbt-vm}
globs='*' logs=$root/target/agree
while getopts :k:l:h o; do
    case $o in
        k) globs=$OPTARG ;;
        l) logs=$OPTARG ;;
        *) sed -n '2,16s/^# \{0,1\}//p' "$0" >&2; exit 2 ;;
    esac
done
shift $((OPTIND - 1))
(($#)) || set -- "$here/agree.scripts"
mkdir -p "$logs"
logs=$(realpath "$logs")
rm -rf "$logs/scripts"
mkdir "$logs/scripts"
# a copy: one that is built anew meanwhile is another
cp "${RBT:-$root/target/debug/rbt}" "$logs/rbt"

# --- each script is a file of its own
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

# --- the kernels' word: status 0 is ok. Within the machine.
cat >"$logs/attach.sh" <<'EOF'
cd "$1" || exit 2
for s in scripts/*.bt; do
    word=ok
    said=$(timeout "${AGREE_PATIENCE:-120}" ./rbt --unsafe --dry-run "$s" 2>&1 >/dev/null) || { (($? == 124)) && word=late || word=FAIL; }
    printf '%s\t%s\t%s\n' "$(basename "$s")" "$word" "$(grep -m1 -E 'error|ERROR' <<<"${said:--}" | head -c 200)-"
done
EOF

one() { # KERNEL: its table of `script, check's word, note, the kernel's word, what it says`
    local kernel=$1 dir=$cache/kernels/$1
    (cd "$dir" && "$logs/rbt" snapshot -q --from-package . -o "$logs/$kernel.rbts") 2>"$logs/$kernel.snapshot" || return
    (cd "$logs" && ./rbt check scripts --against "$kernel.rbts" -f json) >"$logs/$kernel.json" 2>"$logs/$kernel.said" || true
    jq -r '.outcomes[] | [(.subject | sub(".*/"; "")), ({ok: "ok", warning: "ok", failed: "FAIL"}[.verdict] // "?"),
        (if any(.findings[]; .level != "error") then "note" else "-" end)] | @tsv' "$logs/$kernel.json" | sort >"$logs/$kernel.check"
    VM_TIMEOUT=${VM_TIMEOUT:-1500} "$here/vmrun.sh" -k "$kernel" -- bash "$logs/attach.sh" "$logs" >"$logs/$kernel.attach" 2>"$logs/$kernel.err" || true
    # one that the machine did not come to has no line
    join -t $'\t' -a 1 -e late -o 0,1.2,1.3,2.2,2.3 "$logs/$kernel.check" <(sort "$logs/$kernel.attach") >"$logs/$kernel.table"
}

kernels=()
for glob in $globs; do
    while IFS= read -r k; do kernels+=("$k"); done < <(find "$cache/kernels" -mindepth 1 -maxdepth 1 -name "$glob" -printf '%f\n' | sort -V)
done
for kernel in "${kernels[@]}"; do one "$kernel"; done

# --- the table
status=0
printf '%-36s %7s %6s %10s %10s %10s %11s\n' kernel scripts agree 'false ok' 'with note' 'false FAIL' 'out of time'
for kernel in "${kernels[@]}"; do
    [[ -s $logs/$kernel.table ]] || { echo "$kernel: no table: see $logs/$kernel.err" >&2; status=1; continue; }
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
