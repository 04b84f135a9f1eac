#!/usr/bin/env bash
# tests.sh PATTERN: prints "FOLDER NAME" of each test whose own lines match an extended regular expression. It
# fails if there is none.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

grep -rlE --include='*_test.go' "$1" . | while read -r file; do
	awk -v dir="$(dirname "$file")" -v pattern="${1//\\/\\\\}" '
		/^func / { name = $2; sub(/\(.*/, "", name) }
		$0 ~ pattern && name ~ /^Test/ { print dir, name }' "$file"
done | sort -u | grep .
