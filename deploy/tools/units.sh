#!/usr/bin/env bash
# units.sh shared|single: prints the folders of the packages with unit tests. shared: the package imports sync, or starts
# goroutines other than for a test, so that the race detector has something to find. single: the others, and the tools in deploy.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

shares() { # FOLDER
	[[ $1 != ./deploy/* ]] || return 1
	grep -qE '^(import)?\s+"(sync|sync/atomic|golang\.org/x/sync/[a-z]+)"$|\bsafe\.Go\(' "$1"/*.go ||
		ls "$1"/*.go | grep -v '_test\.go$' | xargs -r grep -qE '^\s*go [a-zA-Z]'
}

find . -name '*_test.go' -not -path './deploy/e2e/*' -printf '%h\n' | sort -u | while read -r dir; do
	kind=single
	if shares "$dir"; then kind=shared; fi
	[[ $kind != "$1" ]] || echo "$dir"
done | grep .
