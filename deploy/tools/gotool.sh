#!/usr/bin/env bash
# gotool.sh DIR NAME: builds a pinned release of a tool that is written in Go, from the Go module proxy, as DIR/NAME. Done once: a stamp names the version
# that is there. JOBS is the number of packages compiled at once.
set -euo pipefail

dir=${1:?usage: gotool.sh DIR NAME}
name=${2:?usage: gotool.sh DIR NAME}
case $name in
etcd) version=v3.6.8 module=go.etcd.io/etcd/server/v3 package=$module ;; # kube-apiserver streams lists from etcd 3.6 and later alone
kube-apiserver) version=v1.36.3 module=k8s.io/kubernetes package=$module/cmd/kube-apiserver ;;
helm3) version=v3.22.0 module=helm.sh/helm/v3 package=$module/cmd/helm ;;
helm4) version=v4.3.1 module=helm.sh/helm/v4 package=$module/cmd/helm ;;
kubeconform) version=v0.8.0 module=github.com/yannh/kubeconform package=$module/cmd/kubeconform ;;
*) echo "gotool.sh: no tool is named $name" >&2; exit 2 ;;
esac

mkdir -p "$dir"
dir=$(cd "$dir" && pwd)
stamp=$dir/$name.$version
if [[ -e $stamp && -x $dir/$name ]]; then exit 0; fi
tmp=$(mktemp -d "$dir/build.XXXXXX")
trap 'rm -rf "$tmp"' EXIT

echo "building $name $version" >&2
# A module of its own, so that neither this project's dependencies nor replacements in the tool's own go.mod, which `go install` refuses, matter.
cd "$tmp"
export CGO_ENABLED=0 GOWORK=off GOFLAGS='-mod=mod -buildvcs=false' GO111MODULE=on
go mod init tool 2>/dev/null
if [[ $name == kube-apiserver ]]; then
	# Kubernetes replaces the modules of its staging folder by paths; they are published under v0.MINOR.PATCH of the same release.
	go mod download -json "$module@$version" >download.json
	gomod=$(sed -n 's/^\s*"GoMod": "\(.*\)",\?$/\1/p' download.json)
	while read -r staged; do
		go mod edit -replace "$staged=$staged@v0.${version#v1.}"
	done < <(sed -n 's/^\s*\(k8s\.io\/[^ ]*\) => \.\/staging.*/\1/p' "$gomod")
fi
# Into a file: go get says much, which matters only where it fails.
go get "$module@$version" 2>get.log || { cat get.log >&2; exit 1; }

# What a tool says of itself; Helm 3 takes the capabilities that it assumes of a cluster from there too.
x=main.version=$version
case $name in
kube-apiserver) x=k8s.io/component-base/version.gitVersion=$version ;;
helm3)
	minor=$(go list -m -f '{{.Version}}' k8s.io/client-go | cut -d. -f2)
	x="$module/internal/version.version=$version"
	for at in pkg/lint/rules pkg/chartutil; do x+=" -X $module/$at.k8sVersionMajor=1 -X $module/$at.k8sVersionMinor=$minor"; done ;;
helm4) x=$module/internal/version.version=$version ;;
esac
go build -p "${JOBS:-2}" -trimpath -ldflags "-s -w -X $x" -o "$tmp/$name" "$package"
mv -f "$tmp/$name" "$dir/$name"
rm -f "$dir/$name".v*
touch "$stamp"
