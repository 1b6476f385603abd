#!/bin/bash
# Builds a small kernel from a Debian linux-source package, with options that Debian's kernels do not set, such as
# BPF_KPROBE_OVERRIDE. It stores the kernel as RELEASE-override-amd64 in the directory that vmrun.sh searches. All required
# features are built in, so the kernel has no modules.
#
#   vm-build-kernel.sh [SERIES]     Build the package linux-source-SERIES, where SERIES is 6.1 (default), 6.12, ...
#
# The build needs gcc make flex bison bc libelf-dev dwarves (pahole, for BTF) xz-utils. It takes ten minutes on two processors,
# and temporarily needs 2.8 GB.
#
# VM_CACHE, VM_SUITES  as for vm-fetch.sh. vm-fetch.sh must have read the suites in VM_SUITES before.
# VM_JOBS              number of jobs for make -j (default: the number of processors)
# VM_BUILD             directory of the build (default: VM_CACHE/src). VM_KEEP=1 keeps the sources after the build.
#
# The script prints the kernel's release to standard output, and messages to standard error.
set -euo pipefail
VM_CACHE=${VM_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/rbt-vm}
VM_BUILD=${VM_BUILD:-$VM_CACHE/src}
series=${1:-6.1}
case $series in -*) sed -n '2,/^set/s/^# \{0,1\}//p' "$0" >&2; exit 2 ;; esac
say() { printf '%s\n' "$*" >&2; }

missing=
for p in gcc make flex bison bc pahole xz; do command -v "$p" >/dev/null || missing+=" $p"; done
[[ -z $missing ]] || { say "missing programs:$missing (apt-get install gcc make flex bison bc libelf-dev dwarves xz-utils)"; exit 1; }

mkdir -p "$VM_CACHE/kernels" "$VM_BUILD"
src=$VM_BUILD/linux-source-$series
if [[ ! -e $src/Makefile ]]; then
    [[ -z ${VM_SUITES:-} ]] || export APT_CONFIG=$VM_CACHE/apt/apt.conf
    d=$(mktemp -d "$VM_BUILD/src.XXXXXX")
    trap 'rm -rf "$d"' EXIT
    (cd "$d" && apt-get -q -o APT::Sandbox::User=root download "linux-source-$series" && dpkg -x ./*.deb .) >&2
    rm -rf "$src"
    tar -C "$VM_BUILD" -xf "$d/usr/src/linux-source-$series.tar.xz"
    rm -rf "$d"
fi

cd "$src"
make -s allnoconfig >&2
on() { for o in "$@"; do scripts/config -e "$o"; done; }
# Options to boot in QEMU and run programs.
on 64BIT SMP PRINTK MULTIUSER FUTEX EPOLL SIGNALFD TIMERFD EVENTFD AIO IO_URING SHMEM POSIX_TIMERS FILE_LOCKING ADVISE_SYSCALLS \
    MEMBARRIER RSEQ KCMP FHANDLE SYSVIPC POSIX_MQUEUE INOTIFY_USER DNOTIFY FANOTIFY PROC_FS PROC_SYSCTL SYSFS TMPFS TMPFS_POSIX_ACL \
    DEVTMPFS HIGH_RES_TIMERS NO_HZ_IDLE PREEMPT_VOLUNTARY BLK_DEV_INITRD BINFMT_ELF BINFMT_SCRIPT MODULES MODULE_UNLOAD TTY UNIX98_PTYS \
    SERIAL_8250 SERIAL_8250_CONSOLE EARLY_PRINTK HYPERVISOR_GUEST PARAVIRT PVH ACPI PCI PCI_MSI HPET HPET_TIMER RTC_CLASS RTC_DRV_CMOS \
    X86_LOCAL_APIC X86_IO_APIC X86_IOPL_IOPERM X86_TSC GENERIC_CPU UNWINDER_ORC RETPOLINE MAGIC_SYSRQ BLOCK KEXEC_CORE \
    NAMESPACES UTS_NS IPC_NS USER_NS PID_NS NET_NS CGROUPS CGROUP_BPF CGROUP_SCHED CGROUP_PIDS CPUSETS MEMCG CGROUP_FREEZER
# Options for the root file system, and for a network to trace.
on VIRTIO_MENU VIRTIO_PCI VIRTIO_CONSOLE NET UNIX UNIX_DIAG INET IPV6 PACKET NETDEVICES NET_CORE VETH DUMMY NET_9P NET_9P_VIRTIO \
    NETWORK_FILESYSTEMS 9P_FS 9P_FS_POSIX_ACL FUSE_FS VIRTIO_FS OVERLAY_FS STREAM_PARSER NET_CLS_ACT NET_SCHED NET_CLS_BPF NET_ACT_BPF
# Options for tracing.
on BPF BPF_SYSCALL BPF_JIT BPF_EVENTS BPF_LSM SECURITY SECURITYFS SECURITY_NETWORK PERF_EVENTS TRACEPOINTS KPROBES KRETPROBES \
    OPTPROBES UPROBES FTRACE FUNCTION_TRACER FUNCTION_GRAPH_TRACER DYNAMIC_FTRACE FPROBE FPROBE_EVENTS KPROBE_EVENTS UPROBE_EVENTS \
    FTRACE_SYSCALLS DEBUG_KERNEL DEBUG_FS DEBUG_FS_ALLOW_ALL STACKTRACE KALLSYMS KALLSYMS_ALL IKCONFIG IKCONFIG_PROC \
    DEBUG_INFO_DWARF4 DEBUG_INFO_BTF SCHED_INFO SCHEDSTATS TASKSTATS TASK_DELAY_ACCT TASK_XACCT TASK_IO_ACCOUNTING
# The options that Debian's kernels do not set.
on FUNCTION_ERROR_INJECTION BPF_KPROBE_OVERRIDE FAULT_INJECTION FAULT_INJECTION_DEBUG_FS FAIL_FUNCTION
scripts/config -d DEBUG_INFO_NONE -d DEBUG_INFO_REDUCED -d EXPERT -d WERROR -e EMBEDDED --set-str LOCALVERSION -override-amd64 --set-str LSM bpf
make -s olddefconfig >&2
for o in BPF_KPROBE_OVERRIDE FUNCTION_ERROR_INJECTION KPROBES FTRACE_SYSCALLS DEBUG_INFO_BTF IKCONFIG_PROC NET_9P_VIRTIO 9P_FS OVERLAY_FS VIRTIO_CONSOLE PVH; do
    grep -q "^CONFIG_$o=y" .config || { say "CONFIG_$o is not set after make olddefconfig"; exit 1; }
done
rel=$(make -s kernelrelease)
k=$VM_CACHE/kernels/$rel
if [[ ! -e $k/vmlinux ]] || ! cmp -s .config "$k/boot/config-$rel"; then
    log=$VM_BUILD/build-$series.log
    make -j"${VM_JOBS:-$(nproc)}" vmlinux >"$log" 2>&1 || { grep -B5 -F '***' "$log" >&2; exit 1; }
    rm -rf "$k.new"
    mkdir -p "$k.new/boot" "$k.new/lib/modules/$rel/kernel"
    strip -g -o "$k.new/vmlinux" vmlinux
    cp .config "$k.new/boot/config-$rel"
    cp System.map "$k.new/boot/System.map-$rel"
    make -s modules.builtin 2>/dev/null || true
    cp modules.builtin "$k.new/lib/modules/$rel/" 2>/dev/null || : >"$k.new/lib/modules/$rel/modules.builtin"
    rm -rf "$k"
    mv "$k.new" "$k"
fi
cd /
[[ -n ${VM_KEEP:-} ]] || rm -rf "$src"
echo "$rel"
