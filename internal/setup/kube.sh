#!/usr/bin/env bash
# Builds what the tests on a real Kubernetes API server run: kube-apiserver,
# etcd, kubectl and helm, from the versions that kube/go.mod pins, and the
# definitions of the kinds that they load. Into a folder of the cache that is
# named by all of these, so that another version never takes another's place.
# Idempotent; prints the folder. With --where it prints it and builds nothing.
#
# Environment:
#   GRAPEVINE_CACHE   the cache folder, default $HOME/.cache/grapevine
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
cd "$here/kube"

# Modules whose definitions are loaded, and where within them these are.
definitions=(
	'sigs.k8s.io/gateway-api@v1.6.1 config/crd/standard gateway'
	'sigs.k8s.io/gateway-api-inference-extension@v1.6.0 config/crd/bases inference'
	'sigs.k8s.io/gateway-api-inference-extension@v1.4.0 config/crd/bases inference-old'
)

say() { printf 'setup-kube: %s\n' "$*" >&2; }

hash=$({
	go env GOVERSION
	cat go.mod go.sum ../kube.sh
} | sha256sum | cut -c 1-12)
folder=${GRAPEVINE_CACHE:-$HOME/.cache/grapevine}/kube/$hash

if [[ ${1:-} == --where ]]; then
	[[ -e $folder/ready ]] || { say "the parts are missing: make setup-kube"; exit 1; }
	echo "$folder"
	exit
fi

mkdir -p "$folder"
# A lock of its own: this takes minutes, and nothing else waits for it.
exec 8>"$folder/.lock"
if command -v flock >/dev/null; then flock 8; fi

# build NAME PACKAGE [LDFLAGS]: the program PACKAGE as NAME.
build() {
	local name=$1 start=$SECONDS
	[[ ! -x $folder/$name ]] || return 0
	say "building $name"
	CGO_ENABLED=0 GOFLAGS=-trimpath nice -n 15 go build -mod=readonly -buildvcs=false -ldflags "-s -w ${3:-}" -o "$folder/.$name" "$2"
	mv -f "$folder/.$name" "$folder/$name"
	say "built $name in $((SECONDS - start)) s"
}

if [[ ! -e $folder/ready ]]; then
	version=$(go list -mod=readonly -m -f '{{.Version}}' k8s.io/kubernetes)
	stamp="-X k8s.io/component-base/version.gitVersion=$version -X k8s.io/component-base/version.gitMajor=1 -X k8s.io/component-base/version.gitMinor=$(cut -d. -f2 <<<"$version")"
	build etcd go.etcd.io/etcd/server/v3
	build kube-apiserver k8s.io/kubernetes/cmd/kube-apiserver "$stamp"
	build kubectl k8s.io/kubernetes/cmd/kubectl "$stamp"
	build helm helm.sh/helm/v4/cmd/helm
	for line in "${definitions[@]}"; do
		read -r module path name <<<"$line"
		dir=$(cd "$(mktemp -d)" && GOFLAGS=-mod=mod go mod download -json "$module" | sed -n 's/^\t"Dir": "\(.*\)".*/\1/p')
		[[ -d $dir/$path ]] || { say "$module has no $path"; exit 1; }
		mkdir -p "$folder/crds/$name"
		for file in "$dir/$path"/*.yaml; do install -m 644 "$file" "$folder/crds/$name/"; done
	done
	touch "$folder/ready"
fi
say "ready: $folder"
echo "$folder"
