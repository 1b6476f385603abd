#!/bin/bash
# Runs one command under another Linux kernel. It boots an unmodified Debian kernel (vm-fetch.sh) in a disposable QEMU VM that
# shares the root of this machine, and passes on the command's stdout, stderr and exit code.
#
#   vmrun.sh [-k KERNEL] [-w DIR]... [-r DIR]... [-i] [-v] [--] COMMAND [ARG...]
#
#   -k KERNEL  Boot this release in VM_CACHE/kernels, or the newest that matches a glob (default: the newest for this machine's
#              processor). An arm64 kernel runs in an emulated arm64 machine with the root of `vm-fetch.sh root arm64`.
#   -w DIR     Write changes in DIR through to this machine. All other changes are lost.
#   -r DIR     Let the command read DIR if the root is a directory other than /.
#   -i         Pass this script's standard input to the command. It is read to its end before the boot.
#   -v         Print the VM's console and the duration of each step to stderr.
#
# The command runs as root with the caller's environment. It starts in the current directory, or in / if the VM does not have that
# directory. The exit code is that of the command, except in these cases:
#
#   124        VM_TIMEOUT expired.
#   125        The VM failed. The end of its console is printed to stderr.
#   126, 127   The command could not be run.
#
# VM_CACHE    the cache of vm-fetch.sh (default: ${XDG_CACHE_HOME:-$HOME/.cache}/rbt-vm)
# VM_KERNEL   the default for -k
# VM_TIMEOUT  seconds for the entire run (default: 300)
# VM_MEM      memory (default: 1G)
# VM_CPUS     number of processors (default: 2)
# VM_APPEND   additional kernel command line
# VM_QEMU     additional arguments for QEMU
# VM_FS       9p or virtiofs, which needs root. The default is 9p if the kernel is Linux 6 or newer and has 9p, which cloud
#             flavors do not. Otherwise it is virtiofs.
# VM_ROOT     overlay (default), with which all files appear writable, or ro, with which only /tmp, /run and /var/tmp are writable
# VM_SHARE    the directory that becomes the root (default: /, or VM_CACHE/arm64/root for arm64)
# VM_MACHINE  q35 (default), pc or microvm, and virt for arm64
# VM_ACCEL    the accelerator (default: tcg,thread=single). With thread=multi, QEMU 7.2 has races with the kernel's code patching
#             (kprobes, ftrace, static keys), which cause "Oops: int3". Since QEMU 10, thread=multi is safe, but not faster.
# VM_CPU      the processor (default: max,erms=off,fsrm=off, or max,pauth-impdef=on for arm64). "rep movsb" is slow in emulation,
#             and without these two features, the kernel and libc use other loops. pauth-impdef selects a cheap algorithm for
#             pointer authentication.
# VM_BIOS     the firmware (default: qboot.rom)
# VM_ASLR     1 enables address randomization, which is disabled by default because it slows down emulation
# VM_QEMU_DIR an unpacked QEMU other than VM_CACHE/qemu
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
cache=${VM_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/rbt-vm}
kernel=${VM_KERNEL:-} verbose= input= more=()
usage() { sed -n '2,40s/^# \{0,1\}//p' "$0" >&2; exit 2; }
die() { echo "vmrun: $*" >&2; exit 125; }
while getopts :k:w:r:ivh o; do
    case $o in
        k) kernel=$OPTARG ;;
        w) more+=("rw $(realpath -- "$OPTARG")") ;;
        r) more+=("ro $(realpath -- "$OPTARG")") ;;
        i) input=1 ;;
        v) verbose=1 ;;
        *) usage ;;
    esac
done
shift $((OPTIND - 1))
(($#)) || usage
t0=$EPOCHREALTIME

# --- Select the kernel.
rel=
while IFS= read -r r; do
    # shellcheck disable=SC2053
    [[ -z $kernel || $r == $kernel ]] && rel=$r
done < <(cd "$cache/kernels" 2>/dev/null && ls -d -- *-*64 2>/dev/null | grep -E -- "-$([[ $kernel == *-arm64 ]] && echo arm64 || dpkg --print-architecture)$" | sort -V)
[[ -n $rel ]] || die "no kernel ${kernel:-} in $cache/kernels (run vm-fetch.sh kernel NAME)"
kdir=$cache/kernels/$rel
arch=${rel##*-}
config() { grep -qE "^CONFIG_$1=[ym]" "$kdir/boot/config-$rel"; }
fs=${VM_FS:-}
# Linux 5.x reads 9p one page at a time, and virtiofs takes half the time there.
[[ -n $fs ]] || { config NET_9P_VIRTIO && [[ $rel != 5.* ]] && fs=9p || fs=virtiofs; }

# --- Select the settings for the kernel's architecture.
case $arch in
    arm64)
        qemu=qemu-system-aarch64 q=$cache/arm64/qemu share=$cache/arm64/root machine=virt console=ttyAMA0
        cpu=max,pauth-impdef=on cc=aarch64-linux-gnu-gcc bios='' accel=tcg,thread=single extra=()
        ;;
    *)
        qemu=qemu-system-x86_64 q=$cache/qemu share=/ machine=q35 console=ttyS0
        cpu=max,erms=off,fsrm=off cc=${CC:-cc} bios=qboot.rom accel=tcg,thread=single
        extra=(-device isa-debug-exit,iobase=0xf4,iosize=4)
        ;;
esac
share=${VM_SHARE:-$share} machine=${VM_MACHINE:-$machine}
[[ -d $share ]] || die "no root directory $share (run vm-fetch.sh root $arch)"

# --- Select the unpacked QEMU, or an installed one.
vfsd=/usr/lib/qemu/virtiofsd fw=() ld=${LD_LIBRARY_PATH:-}
q=${VM_QEMU_DIR:-$q}
if [[ -x $q/usr/bin/$qemu ]]; then
    qemu=$q/usr/bin/$qemu
    vfsd=$q/usr/lib/qemu/virtiofsd
    fw=(-L "$q/usr/share/qemu" -L "$q/usr/share/seabios")
    ld=$q/usr/lib/x86_64-linux-gnu:$q/lib/x86_64-linux-gnu
elif ! command -v $qemu >/dev/null; then
    die "no $qemu (run vm-fetch.sh qemu${kernel:+ $arch})"
fi
for d in "$q/usr/libexec" /usr/libexec; do [[ -x $vfsd ]] || vfsd=$d/virtiofsd; done

work=$(mktemp -d "${TMPDIR:-/tmp}/vmrun.XXXXXX")
pids=()
cleanup() {
    local p
    # A second signal must not interrupt this.
    trap '' INT TERM
    for p in ${pids[@]+"${pids[@]}"}; do kill "$p" 2>/dev/null || true; done
    rm -rf "$work"
}
trap cleanup EXIT
trap 'exit 130' INT
# A caller that stops a VM that hangs needs its messages.
trap '[[ -n $verbose ]] || tail -n 40 "$work/console" >&2 2>/dev/null; exit 143' TERM

# --- Build the initramfs. One part is cached for each kernel and kind of VM, and the other part is specific to a run.
entry() { # NAME MODE SIZE: prints a header in cpio's "newc" format
    printf '070701%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X%s\0' \
        0 $(($2)) 0 0 1 0 "$3" 0 0 0 0 $((${#1} + 1)) 0 "$1"
    head -c $(((4 - (111 + ${#1}) % 4) % 4)) /dev/zero
}
file() { # NAME MODE PATH: prints a file in cpio's "newc" format
    local s
    s=$(stat -Lc %s "$3")
    entry "$1" "$2" "$s"
    cat "$3"
    head -c $(((4 - s % 4) % 4)) /dev/zero
}
base=$kdir/initrd-$machine-$fs
if [[ ! -s $base || $here/vminit.c -nt $base ]]; then
    mkdir -p "$work/m"
    $cc -O2 -static -s -Wall -o "$work/init" "$here/vminit.c" || die "cannot build vminit.c"
    declare -A at seen=()
    while IFS= read -r p; do
        m=${p##*/} m=${m%%.ko*}
        at[${m//-/_}]=$p
    done < <(find -L "$kdir/lib/modules/$rel/kernel" -name '*.ko*')
    order=()
    want() { # MODULE: adds a module after its dependencies, unless the kernel has it built in
        local m=${1//-/_} p d
        [[ -z ${seen[$m]:-} ]] || return 0
        seen[$m]=1 p=${at[$m]:-}
        if [[ -z $p ]]; then
            grep -qE "/${m//_/[-_]}\.ko$" "$kdir/lib/modules/$rel/modules.builtin" && return 0
            die "$rel has no module $1"
        fi
        case $p in
            *.xz) xz -dc "$p" ;;
            *.zst) zstd -dcq "$p" ;;
            *.gz) gzip -dc "$p" ;;
            *) cat "$p" ;;
        esac >"$work/m/$m.ko"
        d=$(tr '\0' '\n' <"$work/m/$m.ko" | sed -n 's/^depends=//p')
        for d in ${d//,/ }; do want "$d"; done
        order+=("$m")
    }
    [[ $machine == microvm ]] && want virtio_mmio || want virtio_pci
    want virtio_console
    [[ $fs == 9p ]] && { want 9pnet_virtio; want 9p; } || want virtiofs
    want overlay
    for m in ${order[@]+"${order[@]}"}; do echo "/m/$m.ko"; done >"$work/modules.list"
    {
        entry m 0040755 0
        file init 0100755 "$work/init"
        file modules.list 0100644 "$work/modules.list"
        for m in ${order[@]+"${order[@]}"}; do file "m/$m.ko" 0100644 "$work/m/$m.ko"; done
    } >"$work/base"
    mv "$work/base" "$base.$$" && mv "$base.$$" "$base"
fi
printf '%s\0' "$@" >"$work/argv"
env -0 >"$work/env"
cwd=$PWD
if [[ $share != / ]]; then
    # If the root is not /, the VM has the current directory only if it is shared.
    [[ " ${more[*]+"${more[*]}"}" =~ \ r[ow]\ ([^ ]*) && $PWD/ == "${BASH_REMATCH[1]}"/* ]] || cwd=/
fi
printf %s "$cwd" >"$work/cwd"
{
    cat "$base"
    file run.argv 0100600 "$work/argv"
    file run.env 0100600 "$work/env"
    file run.cwd 0100600 "$work/cwd"
    if [[ -n $input ]]; then cat >"$work/stdin"; file run.stdin 0100600 "$work/stdin"; fi
    if ((${#more[@]})); then printf '%s\n' "${more[@]}" >"$work/more"; file shares 0100600 "$work/more"; fi
    if [[ $share == / ]]; then realpath "$kdir" >"$work/kdir"; file kdir 0100600 "$work/kdir"; fi
    entry 'TRAILER!!!' 0 0
} >"$work/initrd"

# --- Run the VM.
mem=${VM_MEM:-1G}
case $machine in
    microvm) dev=device sync='' mopt=microvm,rtc=on,auto-kernel-cmdline=off,ioapic2=off ;;
    q35) dev=pci sync=,ioeventfd=off mopt=q35,usb=off,sata=off,smbus=off,smm=off,vmport=off,i8042=off,graphics=off ;;
    virt) dev=pci sync=,ioeventfd=off mopt=virt,gic-version=3 ;;
    *) dev=pci sync=,ioeventfd=off mopt=$machine,usb=off,smm=off,vmport=off,i8042=off,graphics=off ;;
esac
# With ioeventfd=off, QEMU writes the bytes out before the guest's write to a port returns. No output is lost if the guest then
# ends the VM.
[[ $machine == microvm ]] && gl=(-global virtio-mmio.ioeventfd=off) || gl=()
args=(-nodefaults -no-user-config -display none -no-reboot "${fw[@]}" ${gl[@]+"${gl[@]}"}
    -machine "$mopt" -accel "${VM_ACCEL:-$accel}" -cpu "${VM_CPU:-$cpu}" -smp "${VM_CPUS:-2}" -m "$mem"
    -kernel "$kdir/vmlinux" -initrd "$work/initrd"
    ${extra[@]+"${extra[@]}"}
    -chardev "file,id=con,path=$work/console" -serial chardev:con
    -add-fd fd=8,set=1 -add-fd fd=9,set=2
    -chardev file,id=out,path=/dev/fdset/1,append=on -chardev file,id=err,path=/dev/fdset/2,append=on
    -chardev "file,id=ctl,path=$work/ctl"
    -device virtio-serial-$dev$sync -device virtserialport,chardev=ctl,name=ctl
    -device virtserialport,chardev=out,name=out -device virtserialport,chardev=err,name=err)
[[ $machine != microvm && -n ${VM_BIOS-$bios} ]] && args+=(-bios "${VM_BIOS-$bios}")
shares=("root:$share:on")
for d in ${more[@]+"${more[@]}"}; do
    [[ $d == ro* ]] && ro=on || ro=off
    shares+=("more$((${#shares[@]} - 1)):${d#* }:$ro")
done
[[ $fs == virtiofs ]] && args+=(-object "memory-backend-memfd,id=mem,size=$mem,share=on" -machine memory-backend=mem)
for s in "${shares[@]}"; do
    IFS=: read -r tag path ro <<<"$s"
    if [[ $fs == 9p ]]; then
        args+=(-fsdev "local,id=$tag,path=$path,security_model=none,multidevs=remap,readonly=$ro"
            -device "virtio-9p-$dev,fsdev=$tag,mount_tag=$tag")
    else
        LD_LIBRARY_PATH=$ld "$vfsd" --socket-path="$work/$tag" -o source="$path" -o cache=always -o sandbox=chroot --rlimit-nofile=0 \
            -o log_level=err >"$work/virtiofsd" 2>&1 &
        pids+=($!)
        # Wait until virtiofsd listens (flag 00010000). The socket's name exists before that.
        for ((i = 0; i < 500; i++)); do
            grep -q " 00010000 .* $work/$tag\$" /proc/net/unix && break
            sleep 0.01
        done
        ((i < 500)) || { cat "$work/virtiofsd" >&2; die "virtiofsd did not start"; }
        args+=(-chardev "socket,id=$tag,path=$work/$tag"
            -device "vhost-user-fs-$dev,chardev=$tag,tag=$tag,queue-size=1024")
    fi
done
# no_timer_check skips a test of the timer. The test fails in an emulator that gets too little processor time, and the kernel then
# panics.
append="console=$console quiet panic=-1 no_timer_check tsc=reliable lpj=8000000 mitigations=off nokaslr audit=0 apparmor=0"
append+=" rcupdate.rcu_expedited=1 nowatchdog cryptomgr.notests=1 vm.fs=$fs vm.root=${VM_ROOT:-overlay} ${VM_APPEND:-}"
# Without address randomization, QEMU 7.2 reuses the translated code of one process for the next. The second run of a program then
# takes half the time.
[[ -n ${VM_ASLR:-} ]] || append+=" norandmaps"
[[ -n $verbose ]] && append="${append/quiet/loglevel=7} earlyprintk=ttyS0,115200 earlycon"

: >"$work/ctl"
: >"$work/console"
if [[ -n $verbose ]]; then tail -n +1 -f "$work/console" >&2 & pids+=($!); fi
# Use separate pipes for stdout and stderr, because QEMU needs write-only descriptors.
exec 8> >(exec cat >&1) && outpid=$!
exec 9> >(exec cat >&2) && errpid=$!
t1=$EPOCHREALTIME
rc=0
# shellcheck disable=SC2086
LD_LIBRARY_PATH=$ld timeout -k 5 "${VM_TIMEOUT:-300}" "$qemu" "${args[@]}" -append "$append" ${VM_QEMU:-} \
    </dev/null >"$work/qemu" 2>&1 &
pids+=($!)
exec 8>&- 9>&-
wait $! || rc=$?
wait $outpid $errpid 2>/dev/null || true
t2=$EPOCHREALTIME
[[ -n $verbose ]] && awk -v a="$t0" -v b="$t1" -v c="$t2" -v r="$rel" -v f="$fs" \
    'BEGIN {printf "vmrun: %s over %s: prepared in %.2f s, VM ran %.2f s\n", r, f, b - a, c - b}' >&2

said=$(sed -n 's/^exit //p;s/^fail /fail /p' "$work/ctl" | tail -1)
case $said in
    fail*) echo "vmrun: $said" >&2 ;;
    [0-9]*) exit "$said" ;;
esac
[[ -n $verbose ]] || tail -n 40 "$work/console" >&2
cat "$work/qemu" >&2
if ((rc == 124 || rc == 137)); then
    echo "vmrun: $rel: out of time after ${VM_TIMEOUT:-300} s" >&2
    exit 124
fi
die "$rel: the VM ended without the command's exit code"
