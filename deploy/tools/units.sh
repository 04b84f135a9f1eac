#!/usr/bin/env bash
# units.sh shared|single: prints the folders of the packages with unit tests. shared: the Go files of the package, tests
# included, start goroutines or share memory between them, so that the race detector has something to find. single: the others.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

find . -name '*_test.go' -not -path './deploy/e2e/*' -printf '%h\n' | sort -u | while read -r dir; do
	kind=single
	if grep -qE '"(sync|sync/atomic|golang\.org/x/sync/[a-z]+|[^"]*/api/safe)"|^\s*go [a-zA-Z]' "$dir"/*.go; then
		kind=shared
	fi
	[[ $kind != "$1" ]] || echo "$dir"
done | grep .
