#!/bin/sh
# Regenerates the pictures of README with the commands that README shows beside them. If a command writes an HTML page, Chromium
# takes a screenshot of the page.
#
#   tests/pictures.sh RBT DIRECTORY
set -eu
rbt=$(realpath "$1") readme=$(realpath "$(dirname "$0")/../README.md")
mkdir -p "$2"
cd "$2"
# Pages and pictures show the command, so it must begin with a plain `rbt`.
bin=$(mktemp -d)
ln -s "$rbt" "$bin/rbt"
PATH=$bin:$PATH
sed -n '/^<!-- pictures -->$/,/^```$/s/^rbt //p' "$readme" | while read -r command; do
    eval "rbt $command" </dev/null >/dev/null
done
for page in *.html; do
    [ -f "$page" ] || continue
    profile=$(mktemp -d)
    chromium-headless-shell --no-sandbox --disable-gpu --hide-scrollbars --window-size=1200,560 --virtual-time-budget=3000 \
        --user-data-dir="$profile" --screenshot="${page%.html}.png" "file://$PWD/$page" 2>/dev/null >/dev/null
    rm -r "$profile" "$page"
done
rm -r "$bin"
