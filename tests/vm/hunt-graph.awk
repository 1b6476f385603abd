# Prints the direct calls and jumps between a kernel's functions, as lines "CALLER CALLEE".
#
#   awk -f hunt-graph.awk KALLSYMS DISASSEMBLY
#
# KALLSYMS is the sorted /proc/kallsyms of that kernel, without address randomization. DISASSEMBLY is the output of `objdump -d`
# for the kernel's image. If an address has several names, the first one is used.
FNR == NR {
    if ($2 ~ /^[tTwW]$/ && NF == 3 && $3 !~ /^(__pfx_|__cfi_)/ && !($1 in name)) name[$1] = $3
    next
}
/^ffffffff[0-9a-f]*:/ {
    at = substr($1, 1, 16)
    if (at in name) here = name[at]
    if (match($0, /(call|j[a-z]+) +0x[0-9a-f]+/)) {
        to = substr($0, RSTART, RLENGTH)
        sub(/.*0x/, "", to)
        if (to in name && name[to] != here) edge[here " " name[to]] = 1
    }
}
END { for (e in edge) print e }
