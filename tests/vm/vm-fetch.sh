#!/bin/bash
# Puts QEMU and stock Debian kernels under a cache folder, out of Debian packages,
# without installing any of them.
#
#   vm-fetch.sh list [GLOB]        the linux-image packages apt can see
#   vm-fetch.sh qemu               unpack qemu-system-x86 and the libraries it lacks here
#                                  (unpacked, not installed: installing it can remove another
#                                  version's qemu-utils; VM_QEMU_AGAIN=1 unpacks once more)
#   vm-fetch.sh kernel NAME...     unpack kernels; NAME is a package (linux-image-6.1.0-56-amd64),
#                                  or a glob for the part after linux-image- ('6.12.*-cloud-amd64':
#                                  the newest match is taken)
#   vm-fetch.sh config [RELEASE..] what the unpacked kernels are configured with
#
# VM_CACHE   where it all goes (default ${XDG_CACHE_HOME:-$HOME/.cache}/rbt-vm)
# VM_SUITES  more Debian suites to look for kernels in, for example
#            "bullseye-security trixie-backports"; read through a package list of their own
#            under VM_CACHE, so this machine's apt sources stay as they are
set -euo pipefail
VM_CACHE=${VM_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/rbt-vm}
VM_SUITES=${VM_SUITES:-}
mkdir -p "$VM_CACHE/kernels" "$VM_CACHE/debs"
trap 'rm -rf "$VM_CACHE"/debs/*."$$".*' EXIT

say() { printf '%s\n' "$*" >&2; }

# apt with VM_SUITES added, through a private state folder; without VM_SUITES, plain apt
private_apt() {
    [[ -z $VM_SUITES ]] && return 0
    local a=$VM_CACHE/apt line uri suite main security
    mkdir -p "$a/lists/partial" "$a/cache/archives/partial" "$a/empty.d"
    # the mirrors this machine already uses, and the key they are signed with
    main='' security=''
    while read -r line; do
        case $line in
            *-security*) security=$line ;;
            */debian/) main=$line ;;
        esac
    done < <(apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' | sort -u)
    [[ -n $main ]] || { say "no Debian mirror among this machine's apt sources"; return 1; }
    : >"$a/sources.list.new"
    for suite in $VM_SUITES; do
        uri=$main
        [[ $suite == *-security ]] && uri=${security:-$main}
        echo "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $uri $suite main" >>"$a/sources.list.new"
    done
    cat >"$a/apt.conf" <<EOF
Dir::State::Lists "$a/lists";
Dir::Cache "$a/cache";
Dir::Etc::SourceList "$a/sources.list";
Dir::Etc::SourceParts "$a/empty.d";
Dir::Etc::PreferencesParts "$a/empty.d";
Acquire::Languages "none";
Acquire::IndexTargets::deb::DEP-11::DefaultEnabled "false";
EOF
    export APT_CONFIG=$a/apt.conf
    if ! cmp -s "$a/sources.list.new" "$a/sources.list" || [[ -n ${VM_APT_UPDATE:-} ]]; then
        mv "$a/sources.list.new" "$a/sources.list"
        say "apt-get update ($VM_SUITES)"
        apt-get -q update >"$a/update.log" 2>&1 || { tail -5 "$a/update.log" >&2; rm -f "$a/sources.list"; return 1; }
    fi
}

images() { # GLOB: package names, oldest first
    apt-cache pkgnames linux-image- | grep -E '^linux-image-[0-9]+\.[0-9]+\.[0-9].*-amd64$' |
        sort -V | while read -r p; do
        # shellcheck disable=SC2053
        [[ ${p#linux-image-} == $1 || $p == $1 ]] && echo "$p"
    done || true
}

download() { # PACKAGE... into the current folder
    # apt drops privileges for downloads; as root say so only where that matters
    apt-get -q -o APT::Sandbox::User=root download "$@" >"$VM_CACHE/apt.log" 2>&1 ||
        { tail -5 "$VM_CACHE/apt.log" >&2; return 1; }
}

do_list() {
    private_apt
    local p
    for p in $(images "${1:-*}"); do
        apt-cache madison "$p" | awk '{n = split($6, s, "/"); print $1, $3, s[1]}'
    done | column -t
}

do_qemu() {
    local q=$VM_CACHE/qemu need d
    if [[ -x $q/usr/bin/qemu-system-x86_64 && -z ${VM_QEMU_AGAIN:-} ]]; then
        say "qemu: $q (already there)"
        return 0
    fi
    # what apt would install for it, less what is here already; nothing is installed
    need=$(apt-get -s -q --no-install-recommends install qemu-system-x86 | awk '/^Inst /{print $2}')
    # from Debian 13 on virtiofsd is a package of its own, which qemu-system-x86 does not ask for
    if [[ ! -x /usr/libexec/virtiofsd && -n $(apt-cache madison virtiofsd) ]]; then need+=" virtiofsd"; fi
    if [[ -z $need ]]; then
        say "qemu-system-x86 is installed; nothing to unpack"
        return 0
    fi
    d=$(mktemp -d "$VM_CACHE/debs/qemu.$$.XXXXXX")
    # shellcheck disable=SC2086
    (cd "$d" && download $need)
    rm -rf "$q.new"
    mkdir -p "$q.new"
    for p in "$d"/*.deb; do dpkg -x "$p" "$q.new"; done
    rm -rf "$d" "$q"
    mv "$q.new" "$q"
    say "qemu: $q"
}

# a bzImage's payload, decompressed: booting the ELF kernel spares the VM the decompression
vmlinux() { # BZIMAGE OUT
    local f=$1 u ss off len start
    u() { od -An -tu"$2" -j $(($1)) -N "$2" "$f" | tr -d ' '; }
    ss=$(u 0x1f1 1) off=$(u 0x248 4) len=$(u 0x24c 4)
    start=$(((ss + 1) * 512 + off))
    body() { dd if="$f" bs=1M iflag=skip_bytes,count_bytes skip=$start count="$1" status=none; }
    # all but gzip end in four bytes (the size) that are not the decompressor's
    case $(od -An -tx1 -j $start -N 4 "$f" | tr -d ' ') in
        28b52ffd) body $((len - 4)) | zstd -dcq ;;
        fd377a58) body $((len - 4)) | xz -dcq ;;
        02214c18) body $((len - 4)) | lz4 -dcq ;;
        1f8b*) body "$len" | gzip -dcq ;;
        *) say "$f: a compression this script does not know"; return 1 ;;
    esac >"$2"
}

# A kernel's packages. Newer images are split: linux-image-R depends on linux-base-R (since 7), linux-binary-R and
# linux-modules-R, and a mirror may drop the latter while it still lists the image.
parts() { # PACKAGE: what to download for it, or failure where some of it is gone
    local p=$1 rel=${1#linux-image-} d
    echo "$p"
    for d in $(apt-cache show --no-all-versions "$p" | sed -n 's/^Depends: //p' | sed 's/([^)]*)//g' | tr -d ' ' | tr ',|' '  '); do
        [[ $d == linux-base-$rel || $d == linux-binary-$rel || $d == linux-modules-$rel ]] || continue
        [[ -n $(apt-cache madison "$d") ]] || return 1
        echo "$d"
    done
}

unpack() { # RELEASE PACKAGE...
    local rel=$1 k=$VM_CACHE/kernels/$1 d deb f
    shift
    d=$(mktemp -d "$VM_CACHE/debs/kernel.$$.XXXXXX")
    (cd "$d" && download "$@")
    rm -rf "$k.new"
    mkdir -p "$k.new/boot"
    for deb in "$d"/*.deb; do dpkg -x "$deb" "$k.new"; done
    rm -rf "$d"
    # trixie and later ship modules under usr/lib, and newer images the kernel and its config there too
    [[ -d $k.new/lib/modules ]] || { mkdir -p "$k.new/lib" && ln -s ../usr/lib/modules "$k.new/lib/modules"; }
    for f in vmlinuz config; do
        [[ -e $k.new/boot/$f-$rel ]] || ln -s "../lib/modules/$rel/$f" "$k.new/boot/$f-$rel"
    done
    [[ -d $k.new/lib/modules/$rel/kernel && -e $k.new/boot/config-$rel ]] ||
        { say "$rel: its packages lack modules or config"; rm -rf "$k.new"; return 1; }
    vmlinux "$k.new/boot/vmlinuz-$rel" "$k.new/vmlinux"
    rm -rf "$k"
    mv "$k.new" "$k"
}

do_kernel() {
    private_apt
    local want p rel list
    for want in "$@"; do
        rel=
        for p in $(images "$want" | tac); do
            list=$(parts "$p") || { say "$p: part of it is no longer on the mirror"; continue; }
            rel=${p#linux-image-}
            break
        done
        [[ -n $rel ]] || { say "apt sees no complete kernel for $want"; return 1; }
        # shellcheck disable=SC2086
        [[ -e $VM_CACHE/kernels/$rel/vmlinux ]] || unpack "$rel" $list
        echo "$rel"
    done
}

do_config() {
    local o rel c
    printf '%-34s' release
    local opts=(KPROBES KPROBES_ON_FTRACE OPTPROBES FPROBE BPF_KPROBE_OVERRIDE FUNCTION_ERROR_INJECTION RETHOOK
        UPROBES FTRACE FUNCTION_TRACER DYNAMIC_FTRACE_WITH_DIRECT_CALLS FTRACE_SYSCALLS DEBUG_INFO_BTF
        DEBUG_INFO_BTF_MODULES IKCONFIG BPF_LSM X86_KERNEL_IBT NET_9P_VIRTIO VIRTIO_FS)
    printf ' %s' "${opts[@]}"
    echo
    for rel in "${@:-}"; do
        for c in "$VM_CACHE"/kernels/${rel:-*}/boot/config-*; do
            [[ -e $c ]] || continue
            printf '%-34s' "${c##*/config-}"
            for o in "${opts[@]}"; do
                printf " %-${#o}s" "$(sed -n "s/^CONFIG_$o=//p" "$c" | grep . || echo -)"
            done
            echo
        done
    done
}

case ${1:-} in
    list) shift; do_list "$@" ;;
    qemu) do_qemu ;;
    kernel) shift; do_kernel "$@" ;;
    config) shift; do_config "$@" ;;
    *) sed -n '2,21s/^# \{0,1\}//p' "$0" >&2; exit 2 ;;
esac
