#!/usr/bin/env bash
# Builds what the tests of gateways run beside the parts of kube.sh, each from the version
# that its go.mod pins, into a folder of the cache that is named by it:
#
#   gie   the conformance suite of the Gateway API Inference Extension (gie.test)
#   eg    Envoy Gateway with hooks for inference pools (harness); minutes
#   lwepp the light endpoint picker of that extension (picker); minutes
#   epp   the last full endpoint picker of that extension (picker); minutes
#
# and copies
#
#   charts   the charts that the Gateway API Inference Extension publishes, by version; the kinds that
#            KServe, the Prometheus Operator and Argo Rollouts define; KServe's presets
#
# Idempotent; prints the folder. With --where before the name it builds nothing.
#
# Environment:
#   GRAPEVINE_CACHE   the cache folder, default $HOME/.cache/grapevine
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
cd "$here"

say() { printf 'setup-gateways: %s\n' "$*" >&2; }

where=
if [[ ${1:-} == --where ]]; then
	where=yes
	shift
fi
part=${1:-gie}
case $part in
gie) target=make\ setup-gateways ;;
eg) target=make\ setup-envoy-gateway ;;
charts) target=make\ setup-charts ;;
lwepp | epp) target=make\ setup-pickers ;;
*) say "there is no part $part"; exit 2 ;;
esac
hash=$({
	go env GOVERSION
	[[ ! -d $part ]] || find "$part" -type f | LC_ALL=C sort | xargs cat
	cat gateways.sh
} | sha256sum | cut -c 1-12)
folder=${GRAPEVINE_CACHE:-$HOME/.cache/grapevine}/gateways/$part-$hash

if [[ -n $where ]]; then
	[[ -e $folder/ready ]] || { say "the parts are missing: $target"; exit 1; }
	echo "$folder"
	exit
fi

mkdir -p "$folder"
exec 8>"$folder/.lock"
if command -v flock >/dev/null; then flock 8; fi

# Versions whose charts are rendered: of later ones there are none.
published=(v1.4.0 v1.5.0)

# What is copied of other projects: module, version, file of the module, file of the folder.
copied="
github.com/kserve/kserve v0.20.0 config/crd/full/llmisvc/serving.kserve.io_llminferenceservices.yaml kinds/kserve.yaml
github.com/kserve/kserve v0.20.0 config/llmisvcconfig/config-llm-scheduler.yaml presets/kserve.yaml
github.com/prometheus-operator/prometheus-operator v0.85.0 example/prometheus-operator-crd/monitoring.coreos.com_servicemonitors.yaml kinds/servicemonitors.yaml
github.com/prometheus-operator/prometheus-operator v0.85.0 example/prometheus-operator-crd/monitoring.coreos.com_prometheusrules.yaml kinds/prometheusrules.yaml
github.com/argoproj/argo-rollouts v1.10.2 manifests/crds/rollout-crd.yaml kinds/rollouts.yaml
github.com/argoproj/argo-rollouts v1.10.2 manifests/crds/analysis-template-crd.yaml kinds/analysistemplates.yaml
"

# copy_files copies these files into a folder. The modules are large, and are not kept.
copy_files() {
	local to=$1 tmp module version from file zip
	command -v python3 >/dev/null || { say "python3 is missing (Debian: apt-get install python3)"; exit 1; }
	tmp=$(mktemp -d)
	while read -r module version from file; do
		[[ -n $module ]] || continue
		zip=$tmp/cache/download/$module/@v/$version.zip
		# A module that needs a later Go is an error, although its archive is there.
		[[ -e $zip ]] || (cd "$tmp" && GOMODCACHE=$tmp GOFLAGS='-mod=mod -modcacherw' go mod download "$module@$version" >&2) || true
		mkdir -p "$to/${file%/*}"
		python3 -c 'import sys, zipfile; sys.stdout.buffer.write(zipfile.ZipFile(sys.argv[1]).read(sys.argv[2]))' "$zip" "$module@$version/$from" >"$to/$file"
	done <<<"$copied"
	rm -rf "$tmp"
}

if [[ ! -e $folder/ready && $part == charts ]]; then
	copy_files "$folder"
	for version in "${published[@]}"; do
		dir=$(cd "$(mktemp -d)" && GOFLAGS=-mod=mod go mod download -json "sigs.k8s.io/gateway-api-inference-extension@$version" | sed -n 's/^\t"Dir": "\(.*\)".*/\1/p')
		for chart in inferencepool standalone; do
			mkdir -p "$folder/$version/$chart/charts"
			cp -R "$dir/config/charts/$chart/." "$folder/$version/$chart/"
			cp -R "$dir/config/charts/epplib" "$folder/$version/$chart/charts/"
		done
		chmod -R u+w "$folder/$version"
	done
	touch "$folder/ready"
elif [[ ! -e $folder/ready ]]; then
	start=$SECONDS
	say "building $part"
	cd "$part"
	export CGO_ENABLED=0 GOFLAGS=-trimpath
	case $part in
	gie) # not with && before mv: a build that fails has to end this
		nice -n 15 go test -c -vet=off -mod=readonly -buildvcs=false -ldflags '-s -w' -o "$folder/.new" sigs.k8s.io/gateway-api-inference-extension/conformance
		mv -f "$folder/.new" "$folder/gie.test" ;;
	lwepp | epp)
		nice -n 15 go build -mod=readonly -buildvcs=false -ldflags '-s -w' -o "$folder/.new" "sigs.k8s.io/gateway-api-inference-extension/cmd/$part"
		mv -f "$folder/.new" "$folder/picker" ;;
	eg) # its sources are texts here: they are of a module of their own, which the tree's tools cannot build
		source=$folder/source
		mkdir -p "$source/pools"
		cp go.mod go.sum "$source/"
		cp main.go.txt "$source/main.go"
		cp hooks.go.txt "$source/hooks.go"
		cp pools.go.txt "$source/pools/pools.go"
		cd "$source"
		nice -n 15 go build -mod=readonly -buildvcs=false -ldflags '-s -w' -o "$folder/.new" .
		mv -f "$folder/.new" "$folder/harness" ;;
	esac
	say "built $part in $((SECONDS - start)) s"
	touch "$folder/ready"
fi
say "ready: $folder"
echo "$folder"
