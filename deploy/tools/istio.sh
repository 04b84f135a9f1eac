#!/usr/bin/env bash
# istio.sh DIR: builds Istio's own pilot-agent as DIR/pilot-agent, from the Go module proxy, with the bootstrap template that it needs beside it. Done once: a
# stamp names the version that is there. For `make compat` alone: what Istio's module requires would raise the versions of every other tool.
set -euo pipefail

dir=${1:?usage: istio.sh DIR} istio=v0.0.0-20260827124520-eed52ebb66ad api=v1.31.1
mkdir -p "$dir"
dir=$(cd "$dir" && pwd)
progress=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)/progress.sh
stamp=$dir/pilot-agent.$istio
if [[ -e $stamp && -x $dir/pilot-agent ]]; then exit 0; fi
tmp=$(mktemp -d "$dir/build.XXXXXX")
trap 'rm -rf "$tmp"' EXIT
cat >"$tmp/go.mod" <<E2
module tools
go 1.26.0
require (
	istio.io/istio $istio
	istio.io/api $api
	istio.io/client-go $api
	github.com/envoyproxy/go-control-plane/envoy v1.40.0
	github.com/envoyproxy/go-control-plane/contrib v1.36.1-0.20260729145720-a2d8c7492908
)
E2
cd "$tmp"
export CGO_ENABLED=0 GOWORK=off GOFLAGS='-mod=mod -buildvcs=false'
echo "building pilot-agent $istio" >&2
"$progress" -v pilot-agent go build -v -p "${JOBS:-2}" -trimpath -tags=vtprotobuf,disable_pgv -ldflags '-s -w' -o "$tmp/pilot-agent" istio.io/istio/pilot/cmd/pilot-agent >&2
install -m 644 "$(go list -m -f '{{.Dir}}' istio.io/istio)/tools/packaging/common/envoy_bootstrap.json" "$dir/pilot-agent-bootstrap.json"
mv -f "$tmp/pilot-agent" "$dir/pilot-agent"
rm -f "$dir"/pilot-agent.v*
touch "$stamp"
