#!/usr/bin/env bash
# each.sh TESTS ARGUMENT...: runs `go test -json ARGUMENT...` in each folder of TESTS, whose lines are "FOLDER NAME", for
# the named tests of that folder. It runs all of them, and fails if one fails.
set -uo pipefail

tests=$1 status=0
shift
while read -r dir names; do
	go test -json "$@" -run "^($names)\$" "$dir" || status=1
done < <(awk '{ all[$1] = all[$1] (all[$1] ? "|" : "") $2 } END { for (d in all) print d, all[d] }' <<<"$tests" | sort)
exit $status
