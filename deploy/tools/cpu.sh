#!/usr/bin/env bash
# cpu.sh FILE PROGRAM ARGUMENT...: runs a test binary for `go test -exec`, and adds a line to FILE: the CPU seconds of the
# binary and its children, and the folder of its package. A package with a cached result adds none.
set -uo pipefail

file=$1
shift
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
used=$(mktemp)
trap 'rm -f "$used"' EXIT
TIMEFORMAT='%U %S'
exec 3>&2
{ time "$@" 2>&3; } 2>"$used"
status=$?
awk -v folder=".${PWD#"$root"}" 'NF == 2 { printf "%.1f %s\n", $1 + $2, folder }' "$used" >>"$file"
exit $status
