#!/usr/bin/env bash
# module.sh DIR NAME: builds a program of another project as DIR/NAME, from the Go module proxy. It builds in the folder of
# the module, with the versions and sums that the module itself has, and copies the manifests with which the program is
# installed to DIR/NAME.yaml. Where a dependency does not compile, it uses a later version of it. A stamp names the
# version, so that it is built once. JOBS is the number of packages to compile in parallel.
set -euo pipefail

dir=${1:?usage: module.sh DIR NAME} name=${2:?usage: module.sh DIR NAME} manifests= tags= cgo=0 raised=
# Programs that are files of this tree call packages of the module.
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
case $name in
argo-rollouts) module=github.com/argoproj/argo-rollouts@v1.8.3 package=./cmd/rollouts-controller manifests=manifests/install.yaml ;;
ratelimit) module=github.com/envoyproxy/ratelimit@v1.4.1-0.20260122083618-3fb702589d36 package=./src/service_cmd ;;
miniredis) module=github.com/envoyproxy/ratelimit@v1.4.1-0.20260122083618-3fb702589d36 package=$here/../e2e/integrations/ratelimit/miniredis.go ;;
oauth2-proxy) module=github.com/oauth2-proxy/oauth2-proxy/v7@v7.15.6 package=. ;;
mockoidc) module=github.com/oauth2-proxy/oauth2-proxy/v7@v7.15.6 package=$here/../e2e/integrations/login/mockoidc.go ;;
# The data store of SPIRE's server is sqlite3, which needs a C compiler.
spire-server) module=github.com/spiffe/spire@v1.13.3 package=./cmd/spire-server cgo=1 ;;
spire-agent) module=github.com/spiffe/spire@v1.13.3 package=./cmd/spire-agent ;;
goreleaser) module=github.com/goreleaser/goreleaser/v2@v2.17.0 package=. ;;
cosign) module=github.com/sigstore/cosign/v3@v3.1.3 package=./cmd/cosign ;;
cyclonedx-gomod) module=github.com/CycloneDX/cyclonedx-gomod@v1.10.0 package=./cmd/cyclonedx-gomod ;;
go-licenses) module=github.com/google/go-licenses@v1.6.0 package=. ;;
govulncheck) module=golang.org/x/vuln@v1.9.0 package=./cmd/govulncheck ;;
cert-manager) module=github.com/cert-manager/cert-manager@v1.21.2 package=$here/../e2e/integrations/certmanager/controllers.go manifests='deploy/crds/*.yaml' ;;
external-dns) module=sigs.k8s.io/external-dns@v0.19.0 package=. ;;
# The version of x/tools that Flagger requires does not compile with recent versions of Go.
flagger) module=github.com/fluxcd/flagger@v1.38.0 package=./cmd/flagger manifests='artifacts/flagger/*.yaml' raised=golang.org/x/tools@v0.24.1 ;;
prometheus) module=github.com/prometheus/prometheus@v0.316.0 package=./cmd/prometheus tags=remove_all_sd,enable_kubernetes_sd ;;
*) echo "module.sh: no program is named $name" >&2; exit 2 ;;
esac
dir=$(mkdir -p "$dir" && cd "$dir" && pwd) version=${module#*@}
progress=$here/progress.sh
stamp=$dir/$name.$version
if [[ -e $stamp && -e $dir/$name && (-z $manifests || -e $dir/$name.yaml) ]]; then exit 0; fi
tmp=$(mktemp -d "$dir/build.XXXXXX")
trap 'rm -rf "$tmp"' EXIT
export CGO_ENABLED=$cgo GOWORK=off GOFLAGS='-mod=readonly -buildvcs=false -trimpath'
cd "$tmp"
source=$(GOFLAGS='' go mod download -json "$module" | sed -n 's/^\t"Dir": "\(.*\)",$/\1/p')
cd "$source"
echo "building $name $version" >&2
modfile=()
if [[ -n $raised ]]; then
  cat go.mod >"$tmp/raised.mod"; cat go.sum >"$tmp/raised.sum"; modfile=(-modfile="$tmp/raised.mod")
  go get "${modfile[@]}" "$raised"
fi
"$progress" -v "$name" go build -v -p "${JOBS:-2}" "${modfile[@]}" -tags "$tags" -ldflags '-s -w' -o "$tmp/$name" "$package" >&2
if [[ -n $manifests ]]; then for file in $manifests; do echo ---; cat "$file"; done >"$tmp/$name.yaml"; fi
mv -f "$tmp/$name"* "$dir"
rm -f "$dir/$name".v*
touch "$stamp"
