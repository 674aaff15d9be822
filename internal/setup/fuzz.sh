#!/usr/bin/env bash
# Runs every fuzz target of the given packages. Two packages run at a time, with
# one worker each. Goes on after a finding and reports all.
#
# The first step in each package is the sweep: systematic changes of all seeds
# (internal/testkit/sweep). Then each target is fuzzed.
#
#   fuzz.sh [--at-most SECONDS] DURATION PACKAGE...
#       --at-most: packages that start later than that are swept as in unit tests,
#       and their targets run 100 inputs only, so that the whole ends soon
#   fuzz.sh --keep
#       replaces the kept corpus by the smallest inputs that Go's fuzzing cache has
#
# The kept corpus is an archive next to this script. Inputs that Go's fuzzing
# cache lacks are unpacked into it first.
#
# At the end of its time Go's fuzzing engine sometimes fails a target with
# nothing but "context deadline exceeded": it stopped a worker that was busy.
# That is no finding; a finding has a longer message and a failing input.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
corpus=$here/corpus.tar.gz
most=
case ${1:-} in
--keep)
	cache=$(go env GOCACHE)/fuzz
	cd "$cache"
	# At most 25 inputs of at most 2 KB for each target.
	find . -mindepth 2 -type d -name 'Fuzz*' | sort | while read -r dir; do
		find "$dir" -type f -size -2048c -printf '%s %p\n' | sort -n | awk 'NR <= 25 { print $2 }'
	done | sort | tar --owner=0 --group=0 --mtime=@0 --sort=name -cf - -T - | gzip -n9 >"$corpus"
	echo "fuzz: kept $(tar tzf "$corpus" | wc -l) inputs in $corpus"
	exit
	;;
--at-most)
	most=$2
	shift 2
	;;
esac
duration=$1
shift

# A line for each package with targets: its import path, its folder, and the targets.
packages=$(go list -f '{{.ImportPath}} {{.Dir}}{{range .TestGoFiles}} {{.}}{{end}}{{range .XTestGoFiles}} {{.}}{{end}}' "$@" |
	while read -r package dir files; do
		[[ -n $files ]] || continue
		# shellcheck disable=SC2086 # names of Go files have no spaces
		found=$(cd "$dir" && sed -n 's/^func \(Fuzz[A-Za-z0-9_]*\)(f \*testing\.F).*/\1/p' $files)
		[[ -z $found ]] || echo "$package $dir" $found
	done)
if [[ -z $packages ]]; then
	echo "fuzz: no fuzz target in $*" >&2
	exit 1
fi
cache=$(go env GOCACHE)/fuzz
if [[ -f $corpus ]]; then
	mkdir -p "$cache"
	tar xzf "$corpus" -C "$cache" --skip-old-files
fi

logs=$(mktemp -d)
trap 'rm -rf "$logs"' EXIT

# cut_short LOG: succeeds when the log has no complaint about the target except
# that its time was over.
cut_short() {
	awk '
		/^--- FAIL: / { failed = 1; next }
		!failed || /^FAIL(\t.*)?$/ || /^exit status 1$/ { next }
		/^ *context deadline exceeded$/ { cut = 1; next }
		{ more = 1 }
		END { exit !(cut && !more) }
	' "$1"
}

# one PACKAGE FOLDER TARGET...: builds a package's tests once, sweeps the seeds of all its targets,
# and fuzzes one target after the other. Prints the output and notes findings.
one() {
	local package=$1 dir=$2 binary=$logs/${1//\//_} log time target sweep=1 rc=0
	shift 2
	log=$binary.log
	if ! go test -c -gcflags=-d=libfuzzer -vet off -o "$binary" "$package" >"$log" 2>&1; then
		cat "$log"
		echo "build of $package" >>"$logs/failed"
		return
	fi
	cd "$dir"
	[[ -z $most ]] || ((SECONDS < most)) || sweep=
	if GRAPEVINE_SWEEP=$sweep "$binary" -test.run '^Fuzz' -test.timeout 10m </dev/null >"$log" 2>&1; then
		echo "fuzz: swept the seeds of $package${sweep:+, all changes}, $SECONDS s after the start"
	else
		echo "fuzz: sweep of $package"
		cat "$log"
		echo "sweep of $package" >>"$logs/failed"
	fi
	for target; do
		time=$duration rc=0
		[[ -z $most ]] || ((SECONDS < most)) || time=100x
		"$binary" -test.run '^$' -test.fuzz "^$target\$" -test.fuzztime "$time" -test.parallel 1 \
			-test.fuzzcachedir "$cache/$package" </dev/null >"$log" 2>&1 || rc=$?
		echo "fuzz: $target in $package for $time"
		cat "$log"
		if ((rc)) && cut_short "$log"; then
			echo "fuzz: $target was cut short by its own deadline, without a finding"
		elif ((rc)); then
			echo "$target in $package" >>"$logs/failed"
		fi
	done
	rm -f "$binary"
}

while read -r package dir targets; do
	while (($(jobs -rp | wc -l) >= 2)); do wait -n || true; done
	# shellcheck disable=SC2086 # a list of names
	one "$package" "$dir" $targets >"$logs/out.${package//\//_}" 2>&1 && cat "$logs/out.${package//\//_}" &
done <<<"$packages"
wait

if [[ -s $logs/failed ]]; then
	sed 's/^/fuzz: FAILED: /' "$logs/failed" >&2
	exit 1
fi
echo "fuzz: $(awk '{ n += NF - 2 } END { print n }' <<<"$packages") targets without a finding in $SECONDS s"
