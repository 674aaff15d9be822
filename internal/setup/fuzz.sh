#!/usr/bin/env bash
# Runs every fuzz target of the given packages, one after the other (go test
# fuzzes one target at a time). Goes on after a finding and reports all.
#
#   fuzz.sh DURATION PACKAGE...
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

failed=()
while read -r package target; do
	echo "fuzz: $target in $package for $duration"
	go test -run '^$' -fuzz "^$target\$" -fuzztime "$duration" "$package" </dev/null || failed+=("$target in $package")
done <<<"$targets"

if ((${#failed[@]})); then
	printf 'fuzz: FAILED: %s\n' "${failed[@]}" >&2
	exit 1
fi
echo "fuzz: $(wc -l <<<"$targets") targets without a finding"
