#!/usr/bin/env bash
# gotool.sh DIR NAME: builds a tool that is written in Go as DIR/NAME, from the Go module proxy, at the version in the
# go.mod beside this script. A stamp names the version, so that it is built once. JOBS is the number of packages to compile
# in parallel.
set -euo pipefail

dir=${1:?usage: gotool.sh DIR NAME} name=${2:?usage: gotool.sh DIR NAME}
case $name in
etcd) package=go.etcd.io/etcd/server/v3 ;;
kube-apiserver) package=k8s.io/kubernetes/cmd/kube-apiserver ;;
helm3) package=helm.sh/helm/v3/cmd/helm ;;
helm4) package=helm.sh/helm/v4/cmd/helm ;;
kubeconform) package=github.com/yannh/kubeconform/cmd/kubeconform ;;
gotestsum) package=gotest.tools/gotestsum ;;
*) echo "gotool.sh: no tool is named $name" >&2; exit 2 ;;
esac

mkdir -p "$dir"
dir=$(cd "$dir" && pwd)
cd "$(dirname "${BASH_SOURCE[0]}")"
export CGO_ENABLED=0 GOWORK=off
read -r module version < <(go list -f '{{.Module.Path}} {{.Module.Version}}' "$package")
stamp=$dir/$name.$version
if [[ -e $stamp && -x $dir/$name ]]; then exit 0; fi
tmp=$(mktemp -d "$dir/build.XXXXXX")
trap 'rm -rf "$tmp"' EXIT

# The version that a tool reports. Helm 3 also derives the assumed capabilities of a cluster from it.
x=main.version=$version
case $name in
kube-apiserver) x=k8s.io/component-base/version.gitVersion=$version ;;
helm3)
	minor=$(go list -m -f '{{.Version}}' k8s.io/client-go | cut -d. -f2)
	x="$module/internal/version.version=$version"
	for at in pkg/lint/rules pkg/chartutil; do x+=" -X $module/$at.k8sVersionMajor=1 -X $module/$at.k8sVersionMinor=$minor"; done ;;
helm4) x=$module/internal/version.version=$version ;;
gotestsum) x=$module/cmd.version=$version ;;
esac
echo "building $name $version" >&2
./progress.sh -v "$name" go build -v -p "${JOBS:-2}" -ldflags "-s -w -X $x" -o "$tmp/$name" "$package" >&2
mv -f "$tmp/$name" "$dir/$name"
rm -f "$dir/$name".v*
touch "$stamp"
