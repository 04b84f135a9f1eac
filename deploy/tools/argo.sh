#!/usr/bin/env bash
# argo.sh DIR: builds the controller of Argo Rollouts as DIR/argo-rollouts, from the Go module proxy, and copies the
# manifests with which it is installed to DIR/argo-rollouts.yaml. It builds in the folder of the module, with the versions
# and sums that the module itself has. A stamp names the version, so that it is built once. `make rollouts` uses it.
set -euo pipefail

dir=$(mkdir -p "${1:?usage: argo.sh DIR}" && cd "$1" && pwd) version=v1.8.3
progress=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)/progress.sh
stamp=$dir/argo-rollouts.$version
if [[ -e $stamp && -e $dir/argo-rollouts && -e $dir/argo-rollouts.yaml ]]; then exit 0; fi
tmp=$(mktemp -d "$dir/build.XXXXXX")
trap 'rm -rf "$tmp"' EXIT
export CGO_ENABLED=0 GOWORK=off GOFLAGS='-mod=readonly -buildvcs=false -trimpath'
cd "$tmp"
module=$(GOFLAGS='' go mod download -json "github.com/argoproj/argo-rollouts@$version" | sed -n 's/^\t"Dir": "\(.*\)",$/\1/p')
cd "$module"
echo "building argo-rollouts $version" >&2
"$progress" -v argo-rollouts go build -v -p "${JOBS:-2}" -ldflags '-s -w' -o "$tmp/argo-rollouts" ./cmd/rollouts-controller >&2
install -m 644 manifests/install.yaml "$tmp/argo-rollouts.yaml"
mv -f "$tmp/argo-rollouts" "$tmp/argo-rollouts.yaml" "$dir"
rm -f "$dir"/argo-rollouts.v*
touch "$stamp"
