#!/usr/bin/env bash
# promql.sh DIR: builds Prometheus's query engine of deploy/promql as DIR/promql. Done again when its sources change.
set -euo pipefail
dir=$(mkdir -p "${1:?usage: promql.sh DIR}" && cd "$1" && pwd)
cd "$(dirname "${BASH_SOURCE[0]}")/../promql"
export CGO_ENABLED=0 GOWORK=off GOFLAGS=-trimpath
tmp=$(mktemp -d "$dir/build.XXXXXX")
trap 'rm -rf "$tmp"' EXIT
../tools/progress.sh -v promql go build -v -p "${JOBS:-2}" -modfile=promql.mod -ldflags '-s -w' -o "$tmp/promql" main.go store.go >&2
mv -f "$tmp/promql" "$dir/promql"
