#!/bin/sh
# Makes the pictures of README anew, by the commands beside them there: tests/pictures.sh RBT FOLDER
# A command that writes a page has its picture taken by Chromium.
set -eu
rbt=$(realpath "$1") readme=$(realpath "$(dirname "$0")/../README.md")
mkdir -p "$2"
cd "$2"
# pages and pictures show the command
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
