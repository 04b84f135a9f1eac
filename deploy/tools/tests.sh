#!/usr/bin/env bash
# tests.sh PATTERN: prints "FOLDER NAME" of each test whose own lines match an extended regular expression, and of each
# test of a folder in which a function that is no test has such a line. It fails if there is none.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

grep -rlE --include='*_test.go' "$1" . | while read -r file; do
	dir=$(dirname "$file")
	awk -v pattern="${1//\\/\\\\}" '
		/^func / { name = $2; sub(/\(.*/, "", name) }
		$0 ~ pattern { print name ~ /^Test/ ? name : "Test[A-Za-z0-9]*" }' "$file" | while read -r name; do
		grep -hoE "^func $name\(t \*testing.T\)" "$dir"/*_test.go | sed -E "s#func (.*)\(.*#$dir \1#"
	done
done | sort -u | grep .
