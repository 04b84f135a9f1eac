#!/usr/bin/env bash
# istio.sh DIR NAME: builds a program of Istio's as DIR/NAME, from the Go module proxy: pilot-agent with its bootstrap
# template; istiod as it is released, with fast marshalling and without validation of its own resources; or istioctl. The
# names istio-chart and istio-dashboards copy the chart of istiod and the dashboards for Grafana instead. A stamp names the
# version, so that it is built once. It has its own module, because the requirements of Istio's module would raise the
# versions of every other tool. `make compat` and `make bench` use it.
set -euo pipefail

dir=${1:?usage: istio.sh DIR NAME} name=${2:?usage: istio.sh DIR NAME} istio=v0.0.0-20260827124520-eed52ebb66ad api=v1.31.1
case $name in
pilot-agent) package=istio.io/istio/pilot/cmd/pilot-agent ;;
istiod) package=istio.io/istio/pilot/cmd/pilot-discovery ;;
istioctl) package=istio.io/istio/istioctl/cmd/istioctl ;;
istio-chart | istio-dashboards) package= ;;
*) echo "istio.sh: nothing of Istio's is named $name" >&2; exit 2 ;;
esac
mkdir -p "$dir"
dir=$(cd "$dir" && pwd)
progress=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)/progress.sh
stamp=$dir/$name.$istio
if [[ -e $stamp && -e $dir/$name ]]; then exit 0; fi
tmp=$(mktemp -d "$dir/build.XXXXXX")
trap 'chmod -R u+w "$tmp"; rm -rf "$tmp"' EXIT
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
if [[ -n $package ]]; then
	echo "building $name $istio" >&2
	"$progress" -v "$name" go build -v -p "${JOBS:-2}" -trimpath -tags=vtprotobuf,disable_pgv -ldflags '-s -w' -o "$tmp/$name" "$package" >&2
else
	go mod download istio.io/istio
fi
module=$(go list -m -f '{{.Dir}}' istio.io/istio)
case $name in
pilot-agent) install -m 644 "$module/tools/packaging/common/envoy_bootstrap.json" "$dir/pilot-agent-bootstrap.json" ;;
istio-dashboards) cp -r "$module/manifests/addons/dashboards" "$tmp/$name" && chmod -R u+w "$tmp/$name" ;;
istio-chart) cp -r "$module/manifests/charts/istio-control/istio-discovery" "$tmp/$name" && chmod -R u+w "$tmp/$name" ;;
esac
rm -rf "$dir/$name" "$dir/$name".v* "$dir/$name"-v*
mv "$tmp/$name" "$dir/$name"
touch "$stamp"
