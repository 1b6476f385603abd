#!/bin/bash
# Runs a command in a separate terminal (tmux) and performs the steps that it reads from standard input.
#
#   terminal.sh [-n] [COLUMNSxROWS] COMMAND
#
# It waits for rbt's prompt before the first step, except with -n. Each line is a step:
#
#   type TEXT      Type the text and Enter.
#   text TEXT      Type the text without Enter.
#   keys NAME…     Press keys, as tmux names them: Tab, C-c, C-d, Up.
#   wait REGEX     Wait until a line in the terminal matches, for at most ten seconds.
#   pause SECONDS  Wait for a fixed time.
#   resize COLUMNSxROWS
#
# After the last step, it waits until the command has ended, for at most ten seconds. It then prints the contents of the terminal,
# and `status N` or `still running`.
set -euo pipefail
columns=100 rows=40 prompt=yes
if [[ ${1:-} == -n ]]; then
    prompt=no
    shift
fi
if [[ ${1:-} =~ ^([0-9]+)x([0-9]+)$ ]]; then
    columns=${BASH_REMATCH[1]} rows=${BASH_REMATCH[2]}
    shift
fi
dir=$(mktemp -d)
t() { tmux -S "$dir/socket" -f /dev/null "$@"; }
trap 't kill-server 2>/dev/null || true; rm -rf "$dir"' EXIT
t new-session -d -x "$columns" -y "$rows" sh -c 'sleep 30'
t set-option -g history-limit 20000
# Ctrl-C ends only the command. The shell that waits for the command handles the signal and continues.
t respawn-pane -k "trap : INT; $*; echo \$? > $dir/status; exec sleep 60"

shown() { t capture-pane -p -J -S -; }
ended() { [[ -s $dir/status ]]; }
until_shown() {
    for _ in $(seq 200); do
        if shown | grep -qE -- "$1"; then return 0; fi
        sleep 0.05
    done
    return 1
}

if [[ $prompt == yes ]]; then until_shown '^rbt>' || true; fi
while IFS= read -r line; do
    text=${line#* }
    case ${line%% *} in
        type) t send-keys -l -- "$text" && t send-keys Enter ;;
        text) t send-keys -l -- "$text" ;;
        # shellcheck disable=SC2086 # each word is the name of a key
        keys)
            t send-keys $text
            # The terminal discards input that immediately follows Ctrl-C.
            if [[ $text == *C-c* ]]; then sleep 0.6; fi ;;
        wait) until_shown "$text" || { shown; echo "*** nothing matches $text"; exit 1; } ;;
        resize) t resize-window -x "${text%x*}" -y "${text#*x}" ;;
        pause) sleep "$text" ;;
        '') ;;
        *) echo "terminal.sh: no such step: $line" >&2; exit 2 ;;
    esac
done
for _ in $(seq 200); do
    if ended; then break; fi
    sleep 0.05
done
shown | sed 's/ *$//' | cat -s
if ended; then echo "status $(<"$dir/status")"; else echo 'still running'; fi
