#!/bin/bash
# Makes the files of a release: rbt-VERSION-MACHINE.tar.gz, a .deb and an .rpm for each machine, and SHA256SUMS.
#
#   tests/release/make.sh [-b BINARY]... [-q] [DIRECTORY]
#
#   DIRECTORY  Write the files to this directory (default: target/dist).
#   -b BINARY  Package this binary and the rbt-run in the same directory. By default, cargo builds both for this machine
#              (rbt-run with the profile `runner`), and on x86_64 for aarch64 as well, by tests/arm64/build.sh. One of the binaries
#              must run on this machine, because it writes the completions.
#   -q         Compress the packages only slightly, which is faster.
#
# `tests/setup.sh release` installs the required packages. The build is reproducible: the same sources give the same files.
set -euo pipefail
script=$(realpath "$0")
usage() { sed -n '2,12s/^# \{0,1\}//p' "$script" >&2; exit 2; }
die() { echo "make.sh: $*" >&2; exit 1; }
binaries=() quickly=
while getopts :b:qh o; do
    case $o in
        b) binaries+=("$(realpath "$OPTARG")") ;;
        q) quickly=1 ;;
        *) usage ;;
    esac
done
shift $((OPTIND - 1))
(($# < 2)) || usage
dist=${1:+$(realpath -m "$1")}
cd "${script%/*}/../.."
dist=${dist:-$PWD/target/dist}
version=$(sed -n 's/^version = "\(.*\)"/\1/p;/^$/q' Cargo.toml)
summary=$(sed -n 's/^description = "\(.*\)"/\1/p' Cargo.toml)
license=$(sed -n 's/^license = "\(.*\)"/\1/p' Cargo.toml)
# The modification time of all files in the archives.
SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct 2>/dev/null || echo 0)}
export SOURCE_DATE_EPOCH LC_ALL=C
temporary=$(mktemp -d)
trap 'rm -rf "$temporary"' EXIT

main() {
    if ((${#binaries[@]} == 0)); then
        local target=${CARGO_TARGET_DIR:-target}
        cargo build --release --locked --bin rbt
        cargo build --profile runner --locked --bin rbt-run --bin rbt-run-small
        binaries=("$(together "$target" native)")
        if [[ $(uname -m) == x86_64 ]]; then
            tests/arm64/build.sh --release --locked
            tests/arm64/build.sh -x cargo build --profile runner --locked --bin rbt-run --bin rbt-run-small
            binaries+=("$(together "$target/aarch64-unknown-linux-gnu" arm64)")
        fi
    fi
    mkdir -p "$dist"
    rm -f "$dist"/rbt[-_]* "$dist/SHA256SUMS"
    local binary native=
    for binary in "${binaries[@]}"; do
        machine_of "$binary"
        [[ $machine != "$(uname -m)" ]] || native=$binary
    done
    [[ -n $native ]] || die "no binary runs on this machine ($(uname -m)) to write the completions: add one with -b"
    completions "$native"
    for binary in "${binaries[@]}"; do
        package "$binary"
    done
    (cd "$dist" && sha256sum rbt* >SHA256SUMS)
    ls -l "$dist"
}

# Copies the programs, which have profiles of their own, to one directory, and prints the path of rbt.
together() { # TARGET NAME
    local to=$temporary/$2.binaries
    mkdir -p "$to"
    cp "$1/release/rbt" "$1/runner/rbt-run" "$1/runner/rbt-run-small" "$to"
    echo "$to/rbt"
}

# Sets $machine, its name in Debian, and the prefix of its binary utilities.
machine_of() {
    local headers file
    for file in "$1" "$(dirname "$1")"/rbt-run{,-small}; do
        headers=$(readelf -hlW "$file") || die "$file: not a binary"
        [[ $headers != *INTERP* ]] || die "$file is not linked statically"
        case $headers in
            *'Machine: '*X86-64*) machine=x86_64 architecture=amd64 gnu=x86_64-linux-gnu ;;
            *'Machine: '*AArch64*) machine=aarch64 architecture=arm64 gnu=aarch64-linux-gnu ;;
            *) die "$file is for neither x86_64 nor aarch64" ;;
        esac
    done
}

# Writes the completions, which are the same for all machines.
completions() {
    local shell
    mkdir "$temporary/completions"
    for shell in bash zsh fish; do
        "$1" completions "$shell" >"$temporary/completions/$shell"
    done
}

# Makes the archive and the packages of a binary.
package() {
    machine_of "$1"
    work=$temporary/$machine
    install -D "$1" "$work/rbt"
    install "$(dirname "$1")"/rbt-run{,-small} "$work"
    "$gnu-strip" "$work"/rbt{,-run,-run-small}
    third_party >"$work/THIRD-PARTY"
    tree
    archive
    deb
    rpm_package
}

# Prints the crates and libraries in the binary, with their licenses and copyright notices.
third_party() {
    echo "The binary contains these crates:"
    echo
    cargo tree --locked --target "$machine-unknown-linux-gnu" --edges normal --prefix none --format '{p}, {l}, {r}' | sed 's/ (\*)$//; s/ (proc-macro)//' | grep -v '^rbt v' | sort -u
    echo
    echo "The addresses are those of their source code."
    echo
    echo "The binary also contains parts of these libraries, whose licenses follow:"
    local name file package seen=
    for name in c m gcc_eh stdc++ elf z zstd lzma LLVMCore; do
        file=$(cc -L/usr/lib/llvm-19/lib -print-file-name="lib$name.a")
        [[ $file == /* ]] || file=/usr/lib/llvm-19/lib/lib$name.a
        package=$(dpkg -S "$(realpath "$file")" 2>/dev/null | sed -n '1s/:.*//p')
        [[ -n $package && $seen != *" $package "* ]] || continue
        seen+=" $package "
        printf '\n\n=== %s %s\n\n' "$package" "$(dpkg-query -W -f '${Version}' "$package" 2>/dev/null)"
        cat "/usr/share/doc/$package/copyright"
    done
    local sources=${CARGO_HOME:-$HOME/.cargo}/registry/src
    local crate
    cargo tree --locked --target "$machine-unknown-linux-gnu" --edges normal --prefix none --format '{p}' | sed 's/ (.*//' | sort -u | while read -r name version; do
        for crate in "$sources"/*/"$name-${version#v}"; do
            for file in "$crate"/LICENSE* "$crate"/COPYING* "$crate"/NOTICE*; do
                [[ -f $file ]] || continue
                printf '\n\n=== %s %s, %s\n\n' "$name" "$version" "${file##*/}"
                cat "$file"
            done
        done
    done
}

# Creates the files that the packages install, in $work/tree.
tree() {
    local to=$work/tree/usr page completions=$temporary/completions
    install -D -m 755 "$work/rbt" "$to/bin/rbt"
    install -m 755 "$work"/rbt-run{,-small} "$to/bin"
    for page in man/*.[1-9]; do
        mkdir -p "$to/share/man/man${page##*.}"
        gzip -9nc "$page" >"$to/share/man/man${page##*.}/${page##*/}.gz"
    done
    mkdir -p "$to/share/bash-completion/completions" "$to/share/fish/vendor_completions.d" \
        "$to/share/zsh/vendor-completions" "$to/share/zsh/site-functions"
    cp "$completions/bash" "$to/share/bash-completion/completions/rbt"
    cp "$completions/fish" "$to/share/fish/vendor_completions.d/rbt.fish"
    # Debian's zsh searches the first directory, and other distributions search the second.
    cp "$completions/zsh" "$to/share/zsh/vendor-completions/_rbt"
    cp "$completions/zsh" "$to/share/zsh/site-functions/_rbt"
    mkdir -p "$to/share/doc/rbt"
    cp README.md LICENSE-APACHE LICENSE-MIT "$to/share/doc/rbt"
    gzip -9nc CHANGELOG.md >"$to/share/doc/rbt/changelog.gz"
    gzip -9nc "$work/THIRD-PARTY" >"$to/share/doc/rbt/THIRD-PARTY.gz"
    mkdir -p "$to/share/doc/rbt/examples"
    cp tests/release/rbt.service tests/release/kubernetes.yaml tests/release/kubernetes-api.yaml tests/release/podmonitor.yaml "$to/share/doc/rbt/examples"
    printf 'License: %s\n\nThe texts are in LICENSE-APACHE and LICENSE-MIT. THIRD-PARTY.gz has those of the libraries in the binary.\n' \
        "$license" >"$to/share/doc/rbt/copyright"
    find "$work/tree" -type d -exec chmod 755 {} + -o -type f ! -path "*/bin/*" -exec chmod 644 {} +
    chmod 644 "$to/share/bash-completion/completions/rbt"
    find "$work/tree" -exec touch -hd "@$SOURCE_DATE_EPOCH" {} +
}

# Makes the archive for any distribution. It contains the binaries and all files that accompany them.
archive() {
    local name=rbt-$version-$machine completions=$temporary/completions
    local to=$work/$name
    mkdir -p "$to/man" "$to/completions"
    cp "$work"/rbt{,-run,-run-small} README.md CHANGELOG.md LICENSE-APACHE LICENSE-MIT "$work/THIRD-PARTY" tests/release/Containerfile "$to"
    cp man/*.[1-9] "$to/man"
    cp "$completions/bash" "$to/completions/rbt.bash"
    cp "$completions/fish" "$to/completions/rbt.fish"
    cp "$completions/zsh" "$to/completions/_rbt"
    chmod -R u=rwX,go=rX "$to"
    tar -C "$work" --sort=name --mtime="@$SOURCE_DATE_EPOCH" --owner=0 --group=0 --numeric-owner -cf - "$name" |
        gzip -n ${quickly:+-1} >"$dist/$name.tar.gz"
}

deb() {
    mkdir -p "$work/tree/DEBIAN"
    cat >"$work/tree/DEBIAN/control" <<EOF
Package: rbt
Version: $version
Architecture: $architecture
Maintainer: the developers of rbt
Section: utils
Priority: optional
Installed-Size: $(du -sk "$work/tree/usr" | cut -f1)
Description: $summary
 rbt runs scripts in the language of bpftrace. Its binary needs no libraries,
 no kernel headers and no compiler; Linux 5.10 or newer is enough.
EOF
    local compression=()
    [[ -z $quickly ]] || compression=(-Zgzip -z1)
    dpkg-deb --root-owner-group "${compression[@]}" --build "$work/tree" "$dist/rbt_${version}_$architecture.deb" >/dev/null
    rm -r "$work/tree/DEBIAN"
}

rpm_package() {
    rm -r "$work/tree/usr/share/zsh/vendor-completions"
    mkdir "$work/rpm"
    cat >"$work/rpm/rbt.spec" <<EOF
Name: rbt
Version: $version
Release: 1
Summary: $summary
License: $license
AutoReqProv: no
%description
rbt runs scripts in the language of bpftrace. Its binary needs no libraries,
no kernel headers and no compiler; Linux 5.10 or newer is enough.
%install
cp -a $work/tree/. %{buildroot}/
%files
/usr/bin/rbt
/usr/bin/rbt-run
/usr/bin/rbt-run-small
/usr/share/bash-completion/completions/rbt
/usr/share/fish/vendor_completions.d/rbt.fish
/usr/share/zsh/site-functions/_rbt
%doc /usr/share/doc/rbt
$(cd "$work/tree" && find usr/share/man -type f | sort | sed 's,^,/,')
EOF
    local payload=w6.xzdio
    [[ -z $quickly ]] || payload=w1.gzdio
    # Do not process the binaries, because they are stripped already. Do not create links to build IDs.
    rpmbuild --quiet -bb --target "$machine" --define "_topdir $work/rpm" --define "_rpmdir $dist" \
        --define '_rpmfilename rbt-%{VERSION}-%{RELEASE}.%{ARCH}.rpm' --define '_build_id_links none' \
        --define '__os_install_post %{nil}' --define 'debug_package %{nil}' \
        --define "_binary_payload $payload" \
        --define 'use_source_date_epoch_as_buildtime 1' --define 'clamp_mtime_to_source_date_epoch 1' \
        --define '_buildhost localhost' "$work/rpm/rbt.spec"
}

main
