#!/usr/bin/env bash
# units.sh shared|single: prints the folders of the packages with unit tests. shared: files of the package import sync, or start
# goroutines other than for a test, so that the race detector has something to find. single: the others.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

find . -name '*_test.go' -not -path './deploy/e2e/*' -printf '%h\n' | sort -u | while read -r dir; do
	kind=single
	if grep -qE '^(import)?\s+"(sync|sync/atomic|golang\.org/x/sync/[a-z]+)"$|\bsafe\.Go\(' "$dir"/*.go ||
		ls "$dir"/*.go | grep -v '_test\.go$' | xargs -r grep -qE '^\s*go [a-zA-Z]'; then
		kind=shared
	fi
	[[ $kind != "$1" ]] || echo "$dir"
done | grep .
