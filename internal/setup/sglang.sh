#!/usr/bin/env bash
# Fetches the Python part of SGLang that keeps its prefix cache and tells of it, beside what
# engines.sh has installed. Its kernels and requirements are not needed. 40 MB to fetch, 2 MB
# on disk. Idempotent; prints the folder.
#
# Environment:
#   GRAPEVINE_CACHE   the cache folder, default $HOME/.cache/grapevine
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
version=0.5.23
parts=$("$here/engines.sh" --where)
folder=$parts/sglang-$version

if [[ ! -d $folder ]]; then
	wheel=$(mktemp -d "$parts/wheel.XXXXXX")
	trap 'rm -rf "$wheel"' EXIT
	nice -n 15 "$parts/venv/bin/python" -m pip --disable-pip-version-check download -q --only-binary :all: --no-deps -d "$wheel" "sglang==$version" >&2
	"$parts/venv/bin/python" - "$wheel"/*.whl "$wheel/code" <<'PY'
import sys, zipfile
wheel = zipfile.ZipFile(sys.argv[1])
wanted = ("sglang/srt/mem_cache/", "sglang/srt/disaggregation/kv_events.py")
wheel.extractall(sys.argv[2], [n for n in wheel.namelist() if n.startswith(wanted) and n.endswith(".py")])
PY
	[[ -d $folder ]] || mv "$wheel/code" "$folder"
fi
echo "$folder"
