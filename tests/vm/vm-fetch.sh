#!/bin/bash
# Downloads Debian packages of QEMU and of unmodified kernels, and unpacks them in a cache directory without installing them.
#
#   vm-fetch.sh list [GLOB]         List the linux-image packages that apt finds.
#   vm-fetch.sh qemu [arm64]        Unpack qemu-system-x86 (or -arm) and the libraries that this machine lacks. Installing the
#                                   package could remove another version's qemu-utils. VM_QEMU_AGAIN=1 unpacks it again.
#   vm-fetch.sh kernel NAME...      Unpack kernels. NAME is a package (linux-image-6.1.0-56-amd64), or a glob for the part after
#                                   linux-image- ('6.12.*-cloud-amd64'), which selects the newest match. It ends in -amd64 or
#                                   -arm64.
#   vm-fetch.sh root arm64          Unpack Debian's arm64 packages as a root directory. vmrun.sh shares it with arm64 machines.
#   vm-fetch.sh config [RELEASE...] Show the configuration of the unpacked kernels.
#
# VM_CACHE   the cache directory (default: ${XDG_CACHE_HOME:-$HOME/.cache}/rbt-vm)
# VM_SUITES  additional Debian suites to search for kernels, for example "bullseye-security trixie-backports". Their package lists
#            are stored in VM_CACHE, so the apt sources of this machine do not change.
set -euo pipefail
VM_CACHE=${VM_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/rbt-vm}
VM_SUITES=${VM_SUITES:-}
mkdir -p "$VM_CACHE/kernels" "$VM_CACHE/debs"
trap 'rm -rf "$VM_CACHE"/debs/*."$$".*' EXIT

say() { printf '%s\n' "$*" >&2; }
# shellcheck source=tests/vm/apt.sh
. "$(dirname "${BASH_SOURCE[0]}")/apt.sh"

# Adds VM_SUITES to apt's suites, with separate package lists. Without VM_SUITES, apt is unchanged. For an architecture that is
# not this machine's, the lists are always separate, and the default suites are those of this machine's version of Debian.
private_apt() { # ARCHITECTURE
    local folder=$VM_CACHE/apt suites=$VM_SUITES
    if [[ $1 != "$(dpkg --print-architecture)" ]]; then
        folder=$VM_CACHE/$1/apt${suites:+-$(tr ' ' + <<<"$suites")} suites=${suites:-$(own_suites)}
    fi
    [[ -n $suites ]] || return 0
    # shellcheck disable=SC2086
    apt_for "$folder" "$1" $suites
}

# Prints the architecture of a kernel, which is the end of its name or of its glob.
architecture() { [[ $1 == *-arm64 ]] && echo arm64 || echo amd64; }

images() { # GLOB: prints the names of matching packages, oldest first
    apt-cache pkgnames linux-image- | grep -E "^linux-image-[0-9]+\.[0-9]+\.[0-9].*-$(architecture "$1")$" |
        sort -V | while read -r p; do
        # shellcheck disable=SC2053
        [[ ${p#linux-image-} == $1 || $p == $1 ]] && echo "$p"
    done || true
}

download() { # PACKAGE...: downloads packages into the current directory
    # apt drops privileges for downloads. The option prevents this, and has an effect only for root.
    apt-get -q -o APT::Sandbox::User=root download "$@" >"$VM_CACHE/apt.log" 2>&1 ||
        { tail -5 "$VM_CACHE/apt.log" >&2; return 1; }
}

do_list() {
    private_apt "$(architecture "${1:-*}")"
    local p
    for p in $(images "${1:-*}"); do
        apt-cache madison "$p" | awk '{n = split($6, s, "/"); print $1, $3, s[1]}'
    done | column -t
}

do_qemu() { # [ARCHITECTURE]
    local q=$VM_CACHE/qemu package=qemu-system-x86 program=qemu-system-x86_64 need d
    if [[ ${1:-} == arm64 ]]; then q=$VM_CACHE/arm64/qemu package=qemu-system-arm program=qemu-system-aarch64; fi
    if [[ -x $q/usr/bin/$program && -z ${VM_QEMU_AGAIN:-} ]]; then
        say "qemu: $q (already unpacked)"
        return 0
    fi
    # List the packages that apt would install. -s installs nothing.
    need=$(apt-get -s -q --no-install-recommends install $package | awk '/^Inst /{print $2}')
    # Since Debian 13, virtiofsd is a separate package, on which QEMU's packages do not depend.
    if [[ ! -x /usr/libexec/virtiofsd && -n $(apt-cache madison virtiofsd) ]]; then need+=" virtiofsd"; fi
    if [[ -z $need ]]; then
        say "$package is already installed"
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

# Extracts the uncompressed kernel, which QEMU can boot. The payload of a bzImage is an ELF file, so the VM does not need to
# decompress the image. An arm64 image is either uncompressed or the payload of an EFI program.
vmlinux() { # FILE OUT
    local f=$1 u ss off len start
    u() { od -An -tu"$2" -j $(($1)) -N "$2" "$f" | tr -d ' '; }
    case $(od -An -c -j 4 -N 4 "$f" | tr -d ' '),$(od -An -c -j 56 -N 3 "$f" | tr -d ' ') in
        zimg,*)
            dd if="$f" bs=1M iflag=skip_bytes,count_bytes skip="$(u 8 4)" count="$(u 12 4)" status=none |
                case $(od -An -c -j 24 -N 4 "$f" | tr -d ' ') in zstd) zstd -dcq ;; *) gzip -dcq ;; esac >"$2"
            return ;;
        *,ARM) cp "$f" "$2"; return ;;
    esac
    ss=$(u 0x1f1 1) off=$(u 0x248 4) len=$(u 0x24c 4)
    start=$(((ss + 1) * 512 + off))
    body() { dd if="$f" bs=1M iflag=skip_bytes,count_bytes skip=$start count="$1" status=none; }
    # Except for gzip, the payload ends with its size in four bytes, which are not part of the compressed data.
    case $(od -An -tx1 -j $start -N 4 "$f" | tr -d ' ') in
        28b52ffd) body $((len - 4)) | zstd -dcq ;;
        fd377a58) body $((len - 4)) | xz -dcq ;;
        02214c18) body $((len - 4)) | lz4 -dcq ;;
        1f8b*) body "$len" | gzip -dcq ;;
        *) say "$f: unknown compression"; return 1 ;;
    esac >"$2"
}

# Prints the packages of a kernel. Newer images are split, so linux-image-R depends on linux-base-R (since 7), linux-binary-R and
# linux-modules-R. A mirror may remove the latter while it still lists the image.
parts() { # PACKAGE: prints the packages to download, and fails if one of them is not available
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
    # Since Debian 13 (trixie), modules are in usr/lib. Newer images also have the kernel and its configuration there.
    [[ -d $k.new/lib/modules ]] || { mkdir -p "$k.new/lib" && ln -s ../usr/lib/modules "$k.new/lib/modules"; }
    for f in vmlinuz config; do
        [[ -e $k.new/boot/$f-$rel ]] || ln -s "../lib/modules/$rel/$f" "$k.new/boot/$f-$rel"
    done
    [[ -d $k.new/lib/modules/$rel/kernel && -e $k.new/boot/config-$rel ]] ||
        { say "$rel: the packages contain no modules or no configuration"; rm -rf "$k.new"; return 1; }
    vmlinux "$k.new/boot/vmlinuz-$rel" "$k.new/vmlinux"
    rm -rf "$k"
    mv "$k.new" "$k"
}

do_kernel() {
    local want p rel list
    for want in "$@"; do
        private_apt "$(architecture "$want")"
        rel=
        for p in $(images "$want" | tac); do
            list=$(parts "$p") || { say "$p: the mirror no longer has all of its packages"; continue; }
            rel=${p#linux-image-}
            break
        done
        [[ -n $rel ]] || { say "apt finds no complete kernel for $want"; return 1; }
        # shellcheck disable=SC2086
        [[ -e $VM_CACHE/kernels/$rel/vmlinux ]] || unpack "$rel" $list
        echo "$rel"
    done
}

# Unpacks the programs that cases run, and the packages they depend on. The installation scripts of the packages do not run. This
# function creates the files that those scripts would create and that cases need.
do_root() { # ARCHITECTURE
    local to=$VM_CACHE/$1/root d deb
    local packages='base-files base-passwd bash binutils coreutils dash diffutils findutils gawk grep hostname iproute2 libc-bin libc6-dbg libstdc++6 login mount
        netbase openssl passwd perl-base procps psmisc python3 sed tar util-linux xz-utils zstd'
    packages=$(echo $packages)
    [[ $(cat "$to.packages" 2>/dev/null) != "$packages" ]] || { say "root: $to (already unpacked)"; return 0; }
    private_apt "$1"
    d=$(mktemp -d "$VM_CACHE/debs/root.$$.XXXXXX")
    # shellcheck disable=SC2046,SC2086
    (cd "$d" && download $(apt-get -s -q --no-install-recommends install $packages | awk '/^Inst /{print $2}'))
    rm -rf "$to.new"
    mkdir -p "$to.new"
    for deb in "$d"/*.deb; do dpkg-deb -x "$deb" "$to.new"; done
    rm -rf "$d"
    mkdir -p "$to.new"/{dev,proc,sys,run,tmp,root,var/tmp}
    chmod 1777 "$to.new/tmp" "$to.new/var/tmp"
    [[ -e $to.new/bin/sh ]] || ln -s dash "$to.new/bin/sh"
    ln -sf gawk "$to.new/usr/bin/awk"
    cp "$to.new/usr/share/base-passwd/passwd.master" "$to.new/etc/passwd"
    cp "$to.new/usr/share/base-passwd/group.master" "$to.new/etc/group"
    echo '127.0.0.1 localhost' >"$to.new/etc/hosts"
    echo arm64 >"$to.new/etc/hostname"
    rm -rf "$to"
    mv "$to.new" "$to"
    echo "$packages" >"$to.packages"
    say "root: $to"
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

# Another run could select other suites, which replaces the lists that apt reads.
exec {lock}>"$VM_CACHE/lock"
[[ ${1:-} == config ]] || flock "$lock"

case ${1:-} in
    list) shift; do_list "$@" ;;
    qemu) do_qemu "${2:-}" ;;
    root) do_root "${2:-arm64}" ;;
    kernel) shift; do_kernel "$@" ;;
    config) shift; do_config "$@" ;;
    *) sed -n '2,15s/^# \{0,1\}//p' "$0" >&2; exit 2 ;;
esac
