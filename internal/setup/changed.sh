#!/usr/bin/env bash
# Prints the packages with changed Go files or test data: uncommitted, and committed since the branch
# left main (or since the last commit on main itself).
set -euo pipefail
cd "$(git rev-parse --show-toplevel)"
base=$(git merge-base HEAD main 2>/dev/null || git rev-parse HEAD)
[[ $base != "$(git rev-parse HEAD)" ]] || base=$(git rev-parse HEAD~1 2>/dev/null || git rev-parse HEAD)
{
	git diff --name-only "$base" -- '*.go' '*/testdata/*'
	git ls-files --others --exclude-standard -- '*.go' '*/testdata/*'
} | sed -E 's#/testdata/.*#/x#; s#/[^/]*$##' | sort -u | while read -r dir; do
	[[ $dir == docs/examples/* ]] || ! compgen -G "$dir/*.go" >/dev/null || echo "./$dir"
done
