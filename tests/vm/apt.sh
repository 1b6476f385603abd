# shellcheck shell=bash
# For other scripts to source: apt for what this machine's own apt does not look at, without a trace in it.

# apt_for FOLDER ARCHITECTURE SUITE...: from here on, apt-get and apt-cache see these suites of Debian for this architecture, by
# package lists of their own below FOLDER. Of another architecture than this machine's, they see nothing as installed.
# VM_APT_UPDATE renews the lists.
apt_for() {
    local a=$1 arch=$2 line uri suite main='' security='' cut=''
    shift 2
    mkdir -p "$a/lists/partial" "$a/cache/archives/partial" "$a/empty.d"
    # the mirrors this machine already uses, and the key they are signed with
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

# The suites of the Debian that this is: its name, with those of security updates.
own_suites() {
    local name
    name=$(. /etc/os-release && echo "${VERSION_CODENAME:-bookworm}")
    echo "$name $name-security"
}
