#!/bin/bash
# Runs the tools from bundles that this kernel built, and compares the output with that of rbt under the same kernel.
#
#   bundles.sh [-k 'GLOB GLOB ...'] [-a DIRECTORY] [-l DIRECTORY] [-d] [NAME]...
#
#   -k    Use the kernels in VM_CACHE/kernels whose names match (default: *-amd64).
#   -a    Build with --against the kernels' snapshots. They are in this directory, or are made there. A bundle that was proven must
#         run, and one that was refused must not.
#   -l    Keep bundles, outputs and times in this directory (default: target/bundles).
#   -d    Load and attach all tools, but run none (--dry-run).
#
# Each NAME is a tool (default: all tools). RBT names the binary (default: target/debug/rbt); rbt-run is in its directory.
# A tool with a load in bundles.loads runs while the load does. Its outputs must be equal, apart from the order of lines, the
# numbers in them and the bars of histograms. The other tools are started and stopped. The tools run in one disposable virtual
# machine for each kernel (vmrun.sh), each first from its bundle and then from its script.
# The table has a row for each kernel. It counts the tools that run in both ways with equal output, those that run in neither,
# those with different output, and those that run in one way only. The last columns have the median seconds from the start of the
# program until everything is attached. Each disagreement is printed below the table.
#
# Exit status: 0 if all tools agree, 1 if some do not, 2 for invalid arguments.
set -euo pipefail -f
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(cd "$here/../.." && pwd)
cache=${VM_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/rbt-vm}
rbt=$(realpath "${RBT:-$root/target/debug/rbt}")
globs='*-amd64' logs=$root/target/bundles dry='' snapshots=''
while getopts :k:a:l:dh o; do
    case $o in
        k) globs=$OPTARG ;;
        a) snapshots=$OPTARG ;;
        l) logs=$OPTARG ;;
        d) dry=1 ;;
        *) sed -n '2,21s/^# \{0,1\}//p' "$0" >&2; exit 2 ;;
    esac
done
shift $((OPTIND - 1))
rm -rf "$logs"
mkdir -p "$logs"
logs=$(realpath "$logs")
names=("$@")
(($#)) || mapfile -t names < <(find "$root/one-liners" -name '*.bt' -printf '%f\n' | sed 's/\.bt$//' | sort)

kernels=()
for glob in $globs; do
    while IFS= read -r k; do kernels+=("$k"); done < <(find "$cache/kernels" -mindepth 1 -maxdepth 1 -name "$glob" -printf '%f\n' | sort -V)
done

# --- Build the bundles on this machine.
against=()
if [[ -n $snapshots ]]; then
    mkdir -p "$snapshots"
    snapshots=$(realpath "$snapshots")
    for kernel in "${kernels[@]}"; do
        to=$snapshots/$kernel.rbts
        # only the running kernel knows which of its functions BPF programs may call
        [[ -s $to ]] || VM_TIMEOUT=900 "$here/vmrun.sh" -k "$kernel" -w "$snapshots" -- "$rbt" snapshot -q -o "$to"
        against+=(--against "$to")
    done
fi
for name in "${names[@]}"; do
    from=$EPOCHREALTIME
    # the status is 1 if the bundle does not run on one of the kernels
    "$rbt" build "$root/one-liners/$name.bt" -o "$logs/$name.bundle" "${against[@]}" 2>"$logs/$name.build" || true
    if [[ -s $logs/$name.bundle ]]; then
        awk -v a="$from" -v b="$EPOCHREALTIME" -v n="$name" 'BEGIN { printf "%s %.2f\n", n, b - a }' >>"$logs/built"
    else
        echo "$name: $(grep -m1 error "$logs/$name.build")" >>"$logs/unbuilt"
    fi
done

# --- The virtual machine runs this program.
cat >"$logs/inside.sh" <<'EOF'
logs=$1 rbt=$2 root=$3 dry=$4 kernel=$5
cd "$logs" || exit 2
mkdir -p "$kernel" load
: >"$kernel.table"
load() { rm -f "$1_load"; cp "$(case $1 in python) echo /usr/bin/python3 ;; *) type -P "$1" ;; esac)" "$1_load"; }
export -f load
/usr/bin/python3 -c 'import fcntl, socket, struct
fcntl.ioctl(socket.socket(), 0x8914, struct.pack("16sH14x", b"lo", 0x49))' # up
cat >load/network <<'END'
import socket
server = socket.create_server(("127.0.0.1", 8123))
client = socket.create_connection(("127.0.0.1", 8123))
accepted = server.accept()[0]
accepted.send(b"x" * 100)
client.recv(200)
client.close()
accepted.close()
socket.socket().connect_ex(("127.0.0.1", 8124))
socket.socket(type=socket.SOCK_DGRAM).connect(("127.0.0.1", 8125))
END
one() { # HOW NAME: writes the output, and prints the status and the seconds until everything is attached
    local out=$kernel/$2.$1 options=() load='' status from ready line pid words
    if [[ $1 == bundle ]]; then local command=("${rbt}-run" "$2.bundle"); else local command=("$rbt" "$root/one-liners/$2.bt"); fi
    line=$(grep "^$2|" "$root/tests/vm/bundles.loads" | head -1)
    from=$EPOCHREALTIME
    if [[ -n $dry ]]; then
        timeout 300 "${command[@]}" -q --dry-run >"$out" 2>"$out.err"
        status=$?
        ready=$EPOCHREALTIME
    else
        IFS='|' read -r _ words load <<<"${line:-||true}"
        read -ra options <<<"$words"
        rm -f ready
        mkfifo ready
        "${command[@]}" -q --notify-fd 9 -- "${options[@]}" 9>ready >"$out" 2>"$out.err" &
        pid=$!
        read -r -n1 -t 300 _ <ready
        ready=$EPOCHREALTIME
        (cd load && bash -c "$load" >/dev/null 2>&1 </dev/null)
        sleep 0.5
        kill -INT $pid 2>/dev/null
        wait $pid
        status=$?
    fi
    awk -v s=$status -v a="$from" -v b="$ready" 'BEGIN { printf "%s %.2f\n", s, b - a }'
}
for bundle in *.bundle; do
    name=${bundle%.bundle}
    # The first run of a program causes events that later ones do not, such as checks of privileges for its file.
    line=$(grep "^$name|" "$root/tests/vm/bundles.loads" | head -1)
    (cd load && timeout 60 bash -c "${line#*|*|}" >/dev/null 2>&1 </dev/null)
    bundled=$(one bundle "$name") compiled=$(one rbt "$name")
    for how in bundle rbt; do
        sed -E 's/[0-9]+([.:][0-9]+)*[KMG]?/N/g; s/\bN [num]?s\b/N s/g; s/\|@* *\|/|@|/g; s/ +/ /g; s/-+/-/g' "$kernel/$name.$how" | sort -u >"$kernel/$name.$how.plain"
    done
    same=equal
    # without a load, the output is that of other programs
    grep -q "^$name|" "$root/tests/vm/bundles.loads" && { cmp -s "$kernel/$name.bundle.plain" "$kernel/$name.rbt.plain" || same=other; }
    echo "$name $bundled $compiled $same" >>"$kernel.table"
done
EOF

for kernel in "${kernels[@]}"; do
    VM_TIMEOUT=${VM_TIMEOUT:-7200} "$here/vmrun.sh" -k "$kernel" -w "$logs" -- \
        bash "$logs/inside.sh" "$logs" "$rbt" "$root" "$dry" "$kernel" 2>"$logs/$kernel.err" || true
done

# --- Print the table.
status=0
if [[ -s $logs/unbuilt ]]; then
    echo "not built here:"
    sed 's/^/    /' "$logs/unbuilt"
fi
median() { sort -n | awk '{ all[NR] = $1 } END { print NR ? all[int((NR + 1) / 2)] : "-" }'; }
printf '%-30s %6s %8s %8s %8s %12s %12s\n' kernel equal neither differ 'one way' 'bundle [s]' 'script [s]'
for kernel in "${kernels[@]}"; do
    table=$logs/$kernel.table
    [[ -s $table ]] || { echo "$kernel: no table, see $logs/$kernel.err" >&2; status=1; continue; }
    awk -v k="$kernel" -v bundle="$(awk '$2 == 0 { print $3 }' "$table" | median)" -v script="$(awk '$4 == 0 { print $5 }' "$table" | median)" '
        ($2 == 0) != ($4 == 0) { one_way++; next } $2 != 0 { neither++; next } $6 == "equal" { equal++; next } { differ++ }
        END { printf "%-30s %6d %8d %8d %8d %12s %12s\n", k, equal, neither, differ, one_way, bundle, script; exit differ + one_way > 0 }
    ' "$table" || status=1
done
for kernel in "${kernels[@]}"; do
    [[ -s $logs/$kernel.table && -n $snapshots ]] || continue
    while read -r name b _ r _; do
        [[ $r == 0 ]] || continue
        said=$(awk -v k="$kernel" '$1 == k { print $4 == "runs" ? "runs" : "does not run" }' "$logs/$name.build")
        ran=$([[ $b == 0 ]] && echo runs || echo 'does not run')
        [[ $said == "$ran" ]] || { echo "$kernel: $name: rbt build says that it $said, but it $ran"; status=1; }
    done <"$logs/$kernel.table"
done
for kernel in "${kernels[@]}"; do
    [[ -s $logs/$kernel.table ]] || continue
    while read -r name b _ r _ same; do
        [[ $b != 0 && $r != 0 || $b == 0 && $r == 0 && $same == equal ]] && continue
        printf '\n%s: %s: status %s from the bundle, %s from the script\n' "$kernel" "$name" "$b" "$r"
        (cd "$logs/$kernel" && cat "$name.bundle.err" "$name.rbt.err" && diff "$name.bundle.plain" "$name.rbt.plain") | head -8 | sed 's/^/    /' || true
    done <"$logs/$kernel.table"
done
exit $status
