#!/usr/bin/env bash
# Runs every fuzz target of the given packages, one after the other (go test
# fuzzes one target at a time). Goes on after a finding and reports all.
#
#   fuzz.sh DURATION PACKAGE...
#
# At the end of its time Go's fuzzing engine sometimes fails a target with
# nothing but "context deadline exceeded": it stopped a worker that was busy.
# That is no finding; a finding says more, and which input failed.
set -euo pipefail

duration=$1
shift

list=$(go test -run '^$' -list '^Fuzz' "$@")
# Names come before the line "ok  PACKAGE  TIME" of their package.
targets=$(awk '/^Fuzz/ { names[n++] = $1 } /^ok/ { for (i = 0; i < n; i++) print $2, names[i]; n = 0 }' <<<"$list")
if [[ -z $targets ]]; then
	echo "fuzz: no fuzz target in $*" >&2
	exit 1
fi

log=$(mktemp)
trap 'rm -f "$log"' EXIT

# cut_short succeeds when the log says nothing against the target but that its
# time was over.
cut_short() {
	awk '
		/^--- FAIL: / { failed = 1; next }
		!failed || /^FAIL(\t.*)?$/ || /^exit status 1$/ { next }
		/^ *context deadline exceeded$/ { cut = 1; next }
		{ more = 1 }
		END { exit !(cut && !more) }
	' "$log"
}

failed=()
while read -r package target; do
	echo "fuzz: $target in $package for $duration"
	go test -run '^$' -fuzz "^$target\$" -fuzztime "$duration" "$package" </dev/null 2>&1 | tee "$log" && continue
	if cut_short; then
		echo "fuzz: $target was cut short by its own deadline, without a finding"
	else
		failed+=("$target in $package")
	fi
done <<<"$targets"

if ((${#failed[@]})); then
	printf 'fuzz: FAILED: %s\n' "${failed[@]}" >&2
	exit 1
fi
echo "fuzz: $(wc -l <<<"$targets") targets without a finding"
