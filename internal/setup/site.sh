#!/usr/bin/env bash
# Installs the generator of the documentation site into a folder of the cache that is named by its
# pinned versions (40 MB). Idempotent; prints the folder.
#
# Environment:
#   GRAPEVINE_CACHE   the cache folder, default $HOME/.cache/grapevine
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
requirements=$here/site/requirements.txt

say() { printf 'setup-site: %s\n' "$*" >&2; }

hash=$({
	python3 -c 'import sys; print(sys.version_info[:2])'
	cat "$requirements" "$here/site.sh"
} | sha256sum | cut -c 1-12)
folder=${GRAPEVINE_CACHE:-$HOME/.cache/grapevine}/site/$hash

mkdir -p "$folder"
exec 8>"$folder/.lock"
if command -v flock >/dev/null; then flock 8; fi

if [[ ! -e $folder/ready ]]; then
	say "installing the generator of the site"
	rm -rf "$folder/venv"
	python3 -m venv --without-pip "$folder/venv"
	python3 -m pip --disable-pip-version-check --python "$folder/venv/bin/python" install -q --no-deps --only-binary :all: -r "$requirements" >&2
	touch "$folder/ready"
fi
echo "$folder"
