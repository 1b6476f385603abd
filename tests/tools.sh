#!/bin/sh
# Checks and compiles the tools of Debian's bpftrace package, unmodified. Nothing is attached.
#
#   tests/tools.sh fetch   Unpack the tools into a cache without installing the package.
#   tests/tools.sh         Print a line for each tool. The exit status is 1 if a tool fails that this kernel could run.
#
# A tool is marked `machine` if it refers to a function, a binary or a member that this machine does not have.
# RBT names the binary (default: target/debug/rbt), and RBT_TOOLS names the cache.
set -eu
root=$(cd "$(dirname "$0")/.." && pwd)
tools=${RBT_TOOLS:-${XDG_CACHE_HOME:-$HOME/.cache}/rbt-tools}
rbt=${RBT:-$root/target/debug/rbt}
machine='no-match|unknown-symbol|missing-binary|unknown-tracepoint|no-kernel-symbol|missing-probe|not-readable'
# Messages about functions and members that this kernel lacks or names differently.
gone='the kernel has no function|cfs_rq has no field .nr_running'

fetch() {
    [ -z "$(ls "$tools" 2>/dev/null)" ] || return 0
    work=$(mktemp -d)
    trap 'rm -rf "$work"' EXIT
    (cd "$work" && apt-get -q download bpftrace >/dev/null 2>&1 && dpkg-deb -x bpftrace_*.deb .)
    mkdir -p "$tools"
    cp "$work"/usr/sbin/*.bt "$tools"/
}

check() {
    good=0 machines=0 bad=0
    for tool in "$tools"/*.bt; do
        name=${tool##*/}
        if said=$("$rbt" --mode codegen "$tool" 2>&1); then
            good=$((good + 1))
            echo "ok       $name"
        elif errors=$(echo "$said" | grep '^error\['); echo "$errors" | grep -qE "^error\[($machine)\]|$gone"; then
            machines=$((machines + 1))
            echo "machine  $name: $(echo "$errors" | head -1 | sed 's/^[^:]*://')"
        else
            bad=$((bad + 1))
            echo "FAILED   $name"
            echo "$said" | sed 's/^/    /'
        fi
    done
    echo "$good compile, $machines cannot on this machine, $bad failed"
    [ "$bad" = 0 ] && [ "$good" -gt 0 ]
}

case ${1:-check} in
    fetch) fetch ;;
    check) fetch && check ;;
    *) sed -n '2,9s/^# \{0,1\}//p' "$0" >&2; exit 2 ;;
esac
