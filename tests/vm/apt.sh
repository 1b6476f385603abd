# shellcheck shell=bash
# Functions that other scripts source. They let apt read suites and architectures that are not configured on this machine, without
# changing apt's own state.

# apt_for DIRECTORY ARCHITECTURE SUITE...: afterwards, apt-get and apt-cache read these suites of Debian for this architecture.
# Their package lists are in DIRECTORY. For an architecture that is not this machine's, no package counts as installed.
# VM_APT_UPDATE updates the lists.
apt_for() {
    local a=$1 arch=$2 line uri suite main='' security='' cut=''
    shift 2
    mkdir -p "$a/lists/partial" "$a/cache/archives/partial" "$a/empty.d"
    # Use the mirrors of this machine, and Debian's key, with which they are signed.
    while read -r line; do
        case $line in
            *-security*) security=$line ;;
            */debian/) main=$line ;;
        esac
    done < <(env -u APT_CONFIG apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' | sort -u)
    [[ -n $main ]] || { echo "no Debian mirror among this machine's apt sources" >&2; return 1; }
    : >"$a/sources.list.new"
    for suite; do
        uri=$main
        [[ $suite == *-security ]] && uri=${security:-$main}
        echo "deb [arch=$arch signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $uri $suite main" >>"$a/sources.list.new"
    done
    if [[ $arch != "$(dpkg --print-architecture)" ]]; then
        : >"$a/status"
        cut="APT::Architecture \"$arch\"; APT::Architectures {\"$arch\";}; Dir::State::Status \"$a/status\";"
    fi
    cat >"$a/apt.conf" <<END
Dir::State::Lists "$a/lists";
Dir::Cache "$a/cache";
Dir::Etc::SourceList "$a/sources.list";
Dir::Etc::SourceParts "$a/empty.d";
Dir::Etc::PreferencesParts "$a/empty.d";
Acquire::Languages "none";
Acquire::IndexTargets::deb::DEP-11::DefaultEnabled "false";
APT::Sandbox::User "root";
$cut
END
    export APT_CONFIG=$a/apt.conf
    if ! cmp -s "$a/sources.list.new" "$a/sources.list" || [[ -n ${VM_APT_UPDATE:-} ]]; then
        mv "$a/sources.list.new" "$a/sources.list"
        echo "apt-get update ($*)" >&2
        apt-get -q update >"$a/update.log" 2>&1 || { tail -5 "$a/update.log" >&2; rm -f "$a/sources.list"; return 1; }
    fi
}

# Prints the suites of this machine's version of Debian: the main suite and the security updates.
own_suites() {
    local name
    name=$(. /etc/os-release && echo "${VERSION_CODENAME:-bookworm}")
    echo "$name $name-security"
}
