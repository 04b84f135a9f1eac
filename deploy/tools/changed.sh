#!/usr/bin/env bash
# changed.sh: prints the folders of the packages in which files differ from origin/main, committed or not. A file outside
# of a package, such as one of testdata, belongs to the nearest package above it. Without origin/main it compares with HEAD.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

base=$(git merge-base HEAD origin/main 2>/dev/null || git rev-parse HEAD)
{
	git diff --name-only "$base"
	git ls-files --others --exclude-standard
} | while read -r file; do
	dir=$(dirname "$file")
	until [[ $dir == . ]] || compgen -G "$dir/*.go" >/dev/null; do dir=$(dirname "$dir"); done
	[[ $dir == . || $dir == deploy/tools ]] || echo "./$dir"
done | sort -u
