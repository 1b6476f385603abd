#!/bin/bash
# Searches for functions on which a probe harms the kernel. It attaches a program that counts and takes a stack to batches of
# functions, in disposable virtual machines under load. If the machine dies, hangs or logs a kernel error during a batch, the
# script halves the batch until it has found the function.
#
#   hunt.sh [-k 'NAME NAME ...'] [-m 'MODE MODE ...'] [-n NUMBER] [-s SEED] [-b SIZE] [-t SECONDS] [-f FILE] [-l DIR] [-r | -c]
#
#   -k NAMES    Use these kernels of tests/vm/kernels (default: 5.10 6.1 6.12 7.3).
#   -m MODES    Attach in these modes (default: all but lowered):
#                 kprobe, kretprobe  with breakpoints
#                 multi, kretmulti   with one link for all functions
#                 fentry, fexit      with trampolines, by hunt-attach.c, because rbt compiles a program for each function
#                 lowered            with the mechanism that rbt selects for kprobes by default
#   -n NUMBER   Add this number of random functions to those of hunt-set.awk (default: 3000).
#   -s SEED     Select the random functions with this seed (default: 1).
#   -b SIZE     Attach this number of functions at once (default: 100).
#   -t SECONDS  Start no further machine after this time (default: no limit).
#   -f FILE     Use the functions in FILE instead, one per line.
#   -l DIR      Keep all files in this directory (default: target/hunt). A second run continues where the first one ended.
#   -r          Report the findings without attaching probes.
#   -c          Compare src/system/kernel/trampolines.rs with the kernels' images without attaching probes. rbt must not list a
#               function for fentry if the code around the programs of a trampoline calls it.
#
# RBT        the binary (default: target/debug/rbt). A release build takes half the time in emulation.
# VM_APPEND  additional kernel command line. With preempt=full, tasks are preempted within RCU's read-side sections.
#
# hunt-set.awk selects the functions that run in the entry and exit of trampolines, in the dispatch of probes, in helpers, at the
# kernel's entry points and in NMIs. It follows the direct calls in the kernel's image, which hunt-graph.awk extracts from the
# output of objdump. The script uses only functions that rbt lists for the kind of probe. A machine that prints nothing for 160
# seconds of its own processor time counts as dead. The exit status is 1 if there are findings.
set -euo pipefail
export LC_ALL=C
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)

# --- This part runs in the virtual machine. Each line of the file is ID MODE FUNCTION...
if [[ ${1:-} == --inside ]]; then
    tmp=$(mktemp -d)
    # If an interrupt arrives at one of the last instructions of return_to_handler, the unwinder ends its stack there and says so
    # once. It does so without BPF, too, for the stacktrace trigger of tracefs while a function's return is traced.
    harmless='stack going in the wrong direction. at return_to_handler'
    mkdir -p /sys/kernel/tracing
    mountpoint -q /sys/kernel/tracing || mount -t tracefs tracefs /sys/kernel/tracing
    while read -r id mode names; do
        echo "begin $id"
        case $mode in
            kprobe | kretprobe) kind=$mode off=(--no-feature fentry,kprobe_multi,kprobe_session) ;;
            multi) kind=kprobe off=(--no-feature fentry,kprobe_session) ;;
            kretmulti) kind=kretprobe off=(--no-feature fentry,kprobe_session) ;;
            fentry | fexit) kind=$mode ;;
            lowered) kind=kprobe off=() ;;
        esac
        if [[ $mode == lowered ]]; then
            # Write a probe for each function, because rbt does not lower a probe with several functions.
            for f in $names; do echo "kprobe:\"$f\" { @[kstack(3)] = count(); }"; done >"$tmp/script.bt"
        else
            { printf "$kind:\"%s\",\n" $names | sed '$s/,$//'; echo '{ @[kstack(3)] = count(); }'; } >"$tmp/script.bt"
        fi
        # The limit also suffices for a machine that gets a fraction of a processor. A lowered function takes the compiler a second.
        limit=500
        dmesg -C
        rc=0
        if [[ $mode == f* ]]; then
            # shellcheck disable=SC2086
            timeout -k 5 $limit "$ATTACH" "$mode" "$LOAD" 1 $names >"$tmp/out" 2>"$tmp/err" || rc=$?
        else
            RBT_MISSING_PROBES=ignore timeout -k 5 -s INT $limit "$RBT" ${off[@]+"${off[@]}"} "$tmp/script.bt" -c "$LOAD 1" \
                >"$tmp/out" 2>"$tmp/err" || rc=$?
        fi
        attached=$(sed -n 's/^Attached \([0-9]*\) probes*$/\1/p' "$tmp/err" | tail -1)
        hits=$(grep -c '^\]: ' "$tmp/out") || true
        bad=$(dmesg | grep -E 'BUG|WARNING:|Oops|lockup|stall|general protection|ftrace bug|scheduling while atomic|kernel NULL' | grep -v "$harmless" |
            head -3 | tr '\n' ';') || true
        echo "end $id $rc ${attached:-0} $hits ${bad// /_}"
        ((rc == 0)) || sed "s/^/said $id /" "$tmp/err" | head -8
        # After an error, the kernel's further results are unreliable.
        [[ -z $bad ]] || { dmesg | sed "s/^/dmesg $id /" | head -60; exit 0; }
    done <"$2"
    exit 0
fi

kernels='5.10 6.1 6.12 7.3' modes='kprobe kretprobe multi kretmulti fentry fexit' number=3000 seed=1 size=100 until='' file=''
folder='' report='' compare=''
while getopts :k:m:n:s:b:t:f:l:rch o; do
    case $o in
        k) kernels=$OPTARG ;;
        m) modes=$OPTARG ;;
        n) number=$OPTARG ;;
        s) seed=$OPTARG ;;
        b) size=$OPTARG ;;
        t) until=$((SECONDS + OPTARG)) ;;
        f) file=$OPTARG ;;
        l) folder=$OPTARG ;;
        r) report=1 ;;
        c) compare=1 ;;
        *) sed -n '2,/^set/s/^# \{0,1\}//p' "$0" >&2; exit 2 ;;
    esac
done
folder=${folder:-$here/../../target/hunt}
mkdir -p "$folder"
folder=$(realpath "$folder")
export RBT=${RBT:-$(realpath "$here/../../target/debug/rbt")} LOAD=$folder/load ATTACH=$folder/attach
cache=${VM_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/rbt-vm}
# A machine counts as hung if it prints nothing for this number of seconds of processor time, or for ten times as long in real
# time.
silence=160
# The number of batches that a machine runs.
turns=12

say() { echo "$(date +%T) $*" >&2; }

glob_of() { awk -v name="$1" '$1 == name { print $2 }' "$here/kernels"; }

# Collects the kernel's symbols, rbt's lists of its functions, and the graph of calls in its image.
facts() { # NAME
    local dir=$folder/$1 glob
    glob=$(glob_of "$1")
    mkdir -p "$dir"
    if [[ ! -s $dir/kallsyms ]]; then
        say "$1: collecting symbols and lists"
        "$here/vmrun.sh" -k "$glob" -w "$dir" -- bash -c '
            mountpoint -q /sys/kernel/tracing || mount -t tracefs tracefs /sys/kernel/tracing
            cd "$1"
            for kind in kprobe fentry fexit; do "$RBT" -l "$kind:vmlinux:*" >"list.$kind"; done
            cat /proc/kallsyms >symbols' - "$dir"
        for kind in kprobe fentry fexit; do sed -i 's/.*://' "$dir/list.$kind"; done
        sort "$dir/symbols" >"$dir/kallsyms"
    fi
    if [[ ! -s $dir/set ]]; then
        say "$1: collecting calls"
        local image
        image=$(compgen -G "$cache/kernels/$glob/vmlinux" | sort -V | tail -1)
        objdump -d "$image" | awk -f "$here/hunt-graph.awk" "$dir/kallsyms" - | sort >"$dir/edges"
        awk -f "$here/hunt-set.awk" "$dir/edges" >"$dir/set.new" && mv "$dir/set.new" "$dir/set"
    fi
}

# Prints the batches of a mode, as lines ID MODE FUNCTION...
queue() { # NAME MODE
    local dir=$folder/$1 mode=$2 list
    case $mode in
        fentry | fexit) list=$dir/list.$mode ;;
        *) list=$dir/list.kprobe ;;
    esac
    [[ $1 != 5.10 && $1 != 6.1 || $mode != *multi ]] || return 0
    {
        if [[ -n $file ]]; then
            grep -Fxf "$file" "$list" || true
        else
            awk 'FILENAME == ARGV[1] { listed[$1]; next } $1 in listed { print $1 }' "$list" "$dir/set"
            awk 'FILENAME == ARGV[1] { known[$1]; next } !($1 in known)' "$dir/set" "$list" |
                shuf --random-source=<(yes "$seed" 2>/dev/null) | awk -v number="$number" 'NR <= number'
        fi
    } | xargs -n "$size" | awk -v mode="$mode" '{ print mode "-" NR, mode, $0 }'
}

# Prints the processor time in seconds that the descendants of a process have used.
worked() { # PID
    local p total=0 fields
    for p in $(pgrep -P "$1"); do
        fields=$(cut -d' ' -f14,15 "/proc/$p/stat" 2>/dev/null) || continue
        total=$((total + (${fields% *} + ${fields#* }) / 100 + $(worked "$p")))
    done
    echo $total
}

# Runs batches of the queue in these modes in one machine until they are done or the machine dies. Fails if no batch is left.
machine() { # NAME
    local dir=$folder/$1 pid last grown since id rc=0
    record "$dir"
    # Run the halves of failed batches first.
    awk -v modes=" $modes " 'FILENAME == ARGV[1] { done[$1]; next } !($1 in done) && index(modes, " " $2 " ")' "$dir/done" "$dir/queue" |
        awk '{ if ($1 ~ /[ab]$/) print; else rest[++n] = $0 } END { for (i = 1; i <= n; i++) print rest[i] }' |
        head -n "$turns" >"$dir/now"
    [[ -s $dir/now ]] || return 1
    rm -f "$dir/out"
    VM_TIMEOUT=3600 "$here/vmrun.sh" -k "$(glob_of "$1")" -- "$here/hunt.sh" --inside "$dir/now" >"$dir/out" 2>"$dir/console" &
    pid=$!
    last=-1 grown=0 since=$SECONDS
    while kill -0 $pid 2>/dev/null; do
        sleep 2
        local is now
        is=$(stat -c %s "$dir/out") now=$(worked $pid)
        ((is == last)) || { last=$is grown=$now since=$SECONDS; }
        if ((now - grown > silence || SECONDS - since > 10 * silence)); then
            kill $pid 2>/dev/null || true
            break
        fi
    done
    wait $pid || rc=$?
    id=$(awk '$1 == "begin" { last = $2 } $1 == "end" { last = "" } END { print last }' "$dir/out")
    local started
    started=$(grep -c '^begin' "$dir/out") || true
    record "$dir"
    if [[ -n $id ]] && ((rc < 124)); then
        say "$1: $id: hunt.sh itself failed in the machine: status $rc"
        cat "$dir/console" >&2
        exit 2
    elif [[ -n $id ]]; then
        cp "$dir/console" "$dir/console.$id"
        echo "$id $rc 0 0 died" >>"$dir/done"
        say "$1: the machine died in $id"
        halves "$dir" "$(awk -v id="$id" '$1 == id' "$dir/now")"
    elif ((started == 0)); then
        say "$1: the machine did not start"
        cat "$dir/console" >&2
        return 1
    fi
}

# Records the batches that a machine has finished, also those of an earlier run that was ended early.
record() { # FOLDER
    local dir=$1 id status attached hits bad names
    [[ -e $dir/out ]] || return 0
    sed -n 's/^end //p' "$dir/out" | while read -r id status attached hits bad; do
        names=$(awk -v id="$id" '$1 == id' "$dir/now")
        echo "$id $status $attached $hits ${bad:-ok}" >>"$dir/done"
        if [[ -n $bad ]]; then
            grep "^dmesg $id " "$dir/out" >"$dir/console.$id" || true
            halves "$dir" "$names"
        fi
    done
    mv "$dir/out" "$dir/out.recorded"
}

halves() { # FOLDER 'ID MODE FUNCTION...'
    local id mode
    read -r id mode names <<<"$2"
    # shellcheck disable=SC2086
    set -- "$1" $names
    local dir=$1 n
    shift
    n=$#
    ((n > 1)) || return 0
    echo "${id}a $mode ${*:1:n / 2}" >>"$dir/queue"
    echo "${id}b $mode ${*:n / 2 + 1}" >>"$dir/queue"
}

# Reports the results of a kernel: numbers by mode, then the findings.
tell() { # NAME
    local dir=$folder/$1
    [[ -s $dir/done ]] || return 0
    awk -v kernel="$1" '
        FILENAME == ARGV[1] { names[$1] = NF - 2; what[$1] = $3; mode[$1] = $2; next }
        { verdict[$1] = $5; order[++n] = $1
          if ($5 == "ok") {
              attached[mode[$1]] += $3; batches[mode[$1]]++
              if ($2 != 0) odd[mode[$1]]++; else refused[mode[$1]] += names[$1] - $3
          } }
        END {
            for (m in batches) printf "%-5s %-10s %5d attached and %d refused in %d batches, of which %d ran out of time\n", kernel, m, attached[m], refused[m], batches[m], odd[m]
            for (i = 1; i <= n; i++) {
                id = order[i]
                if (verdict[id] == "ok") continue
                if (names[id] == 1) printf "%-5s %-10s FOUND %s: %s\n", kernel, mode[id], what[id], verdict[id]
                else if (verdict[id "a"] == "ok" && verdict[id "b"] == "ok") printf "%-5s %-10s TOGETHER, or by chance, %d functions (%s): %s\n", kernel, mode[id], names[id], id, verdict[id]
            }
        }' "$dir/queue" "$dir/done"
}

if [[ -n $compare ]]; then
    status=0
    for kernel in $kernels; do
        facts "$kernel"
        bad=$(awk 'FILENAME == ARGV[1] { listed[$1]; next } $3 == "trampoline" && $2 <= 1 && $1 in listed { print $1 }' \
            "$folder/$kernel/list.fentry" "$folder/$kernel/set")
        echo "$kernel: $(awk '$3 == "trampoline" && $2 <= 1' "$folder/$kernel/set" | wc -l) functions run around programs; of these, rbt lists for fentry: ${bad:-none}"
        [[ -z $bad ]] || status=1
    done
    exit $status
fi
if [[ -z $report ]]; then
    for program in load attach; do
        cc -O1 -pthread -o "$folder/$program.new" "$here/hunt-$program.c" && mv "$folder/$program.new" "$folder/$program"
    done
    for kernel in $kernels; do
        facts "$kernel"
        touch "$folder/$kernel/queue" "$folder/$kernel/done"
        for mode in $modes; do
            grep -q "^$mode-" "$folder/$kernel/queue" || queue "$kernel" "$mode" >>"$folder/$kernel/queue"
            # Finish a mode before the next one, so that an interrupted run has complete modes.
            while [[ -z $until || $SECONDS -lt $until ]] && machine "$kernel"; do
                say "$kernel: $(grep -c . "$folder/$kernel/done") of $(grep -c . "$folder/$kernel/queue") batches"
            done
        done
    done
fi
found=0
for kernel in $kernels; do tell "$kernel"; done | tee "$folder/report"
! grep -qE ' (FOUND|TOGETHER)' "$folder/report" || found=1
exit $found
