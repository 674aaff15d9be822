#!/usr/bin/env bash
# Runs every fuzz target of the given packages, two at a time with one worker
# each. Goes on after a finding and reports all.
#
#   fuzz.sh [--at-most SECONDS] DURATION PACKAGE...
#       --at-most: targets that start later than that run their corpus and 100
#       more inputs only, so that each target runs and the whole ends soon
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
	# At most 40 inputs of at most 2 KB for each target.
	find . -mindepth 2 -type d -name 'Fuzz*' | sort | while read -r dir; do
		find "$dir" -type f -size -2048c -printf '%s %p\n' | sort -n | head -40 | cut -d' ' -f2-
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

list=$(go test -run '^$' -list '^Fuzz' "$@")
# Names come before the line "ok  PACKAGE  TIME" of their package.
targets=$(awk '/^Fuzz/ { names[n++] = $1 } /^ok/ { for (i = 0; i < n; i++) print $2, names[i]; n = 0 }' <<<"$list")
if [[ -z $targets ]]; then
	echo "fuzz: no fuzz target in $*" >&2
	exit 1
fi
if [[ -f $corpus ]]; then
	cache=$(go env GOCACHE)/fuzz
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

# one PACKAGE TARGET: runs a target, prints its output, and notes a finding.
one() {
	local log=$logs/$2.${1//\//_} time=$duration rc=0
	[[ -z $most ]] || ((SECONDS < most)) || time=100x
	go test -run '^$' -fuzz "^$2\$" -fuzztime "$time" -parallel 1 "$1" </dev/null >"$log" 2>&1 || rc=$?
	{
		echo "fuzz: $2 in $1 for $time"
		cat "$log"
		if ((rc)) && cut_short "$log"; then
			echo "fuzz: $2 was cut short by its own deadline, without a finding"
		elif ((rc)); then
			echo "$2 in $1" >>"$logs/failed"
		fi
	} 2>&1
}

while read -r package target; do
	while (($(jobs -rp | wc -l) >= 2)); do wait -n || true; done
	one "$package" "$target" &
done <<<"$targets"
wait

if [[ -s $logs/failed ]]; then
	sed 's/^/fuzz: FAILED: /' "$logs/failed" >&2
	exit 1
fi
echo "fuzz: $(wc -l <<<"$targets") targets without a finding in $SECONDS s"
