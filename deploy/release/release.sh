#!/usr/bin/env bash
# release.sh VERSION DIR TOOLS: writes a release of the commit that is checked out into the folder DIR, and signs it
# with sign.sh. It needs no network: modules are in the cache of Go, and programs in the folder TOOLS. The same commit,
# Go and tools make the same bytes, except for signatures: the only time in a release is the time of the commit.
# bin/goreleaser and bin/release-parts hold what it makes on the way.
set -euo pipefail

usage='usage: release.sh VERSION DIR TOOLS'
version=${1:?$usage} out=${2:?$usage} tools=$(cd "${3:?$usage}" && pwd)
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
die() { echo "release.sh: $*" >&2; exit 1; }
[[ $version =~ ^[0-9]+\.[0-9]+\.[0-9]+(-[0-9A-Za-z.-]+)?$ ]] || die "$version is no version such as 1.31.1-lite.2"
[[ -z $(git status --porcelain) ]] || die "the tree has changes without a commit, and a release names its commit: commit or stash them"

umask 022
commit=$(git rev-parse HEAD) parts=bin/release-parts
SOURCE_DATE_EPOCH=$(git log -1 --format=%ct) GOMODCACHE=$(go env GOMODCACHE) GOCACHE=$(go env GOCACHE)
RELEASE_DATE=$(date -u -d "@$SOURCE_DATE_EPOCH" +%FT%TZ)
export VERSION=$version SOURCE_DATE_EPOCH RELEASE_DATE GOMODCACHE GOCACHE PATH=$tools:$PATH LC_ALL=C TZ=UTC
export CGO_ENABLED=0 GOFLAGS= GOPROXY=off GOTOOLCHAIN=local GOWORK=off GOAMD64=v1 GOARM64=v8.0 GOFIPS140=off GOEXPERIMENT='' GODEBUG=''
rm -rf "$parts" "$out"
mkdir -p "$parts"/{host,completions} "$out"

echo 'collecting licences, and completions' >&2
# Both architectures link the same modules, and verify.sh finds a module without a licence. go-licenses finds Go by GOROOT.
GOROOT=$(go env GOROOT) GOOS=linux GOARCH=amd64 go-licenses save ./cmd/pilot-discovery ./cmd/pilot-agent \
	--ignore github.com/istiod-lite/istiod-lite --save_path "$parts/licenses" 2>"$parts/licenses.log" || { cat "$parts/licenses.log" >&2; exit 1; }
# The programs also link the standard library.
install -D -m 644 "$(go env GOROOT)/LICENSE" "$parts/licenses/std/LICENSE"
(cd "$parts/licenses" && find . -type f \( -iname 'licen[sc]e*' -o -iname 'copying*' -o -iname 'notice*' \) -printf '%P\n') | sort | while read -r file; do
	printf -- '---- %s\n\n' "$file"
	cat "$parts/licenses/$file"
	printf '\n'
done >"$parts/THIRD_PARTY_LICENSES.txt"
go build -trimpath -buildvcs=false -tags grpcnotrace -o "$parts/host/" ./cmd/pilot-discovery ./cmd/pilot-agent
for program in pilot-discovery pilot-agent; do
	for shell in bash zsh fish; do "$parts/host/$program" completion "$shell" >"$parts/completions/$program.$shell"; done
done

echo 'building programs, archives and lists of modules' >&2
# One task at a time, so that an archive has its files in the same order each time.
deploy/tools/progress.sh goreleaser bash -c 'exec goreleaser release --config deploy/release/goreleaser.yaml --snapshot --clean --parallelism 1 >"$0" 2>&1' \
	"$parts/goreleaser.log" >&2 || { cat "$parts/goreleaser.log" >&2; exit 1; }
install -m 644 bin/goreleaser/*.tar.gz bin/goreleaser/*.cdx.json "$parts/THIRD_PARTY_LICENSES.txt" "$out"

echo 'packaging the image and charts' >&2
mapfile -t binaries < <(jq -r '.[] | select(.type == "Binary") | .path' bin/goreleaser/artifacts.json | sort -r)
go run -trimpath ./deploy/image -o "$out/istiod-lite_${version}_image.tar" -version "$version" -revision "$commit" \
	-doc "$parts/THIRD_PARTY_LICENSES.txt" "${binaries[@]}"
deploy/release/notes.sh "$version" CHANGELOG.md >"$out/RELEASE_NOTES.md"
for chart in base istiod gateway; do deploy/release/chart.sh "charts/$chart" "$version" "$out/RELEASE_NOTES.md" "$out"; done

mapfile -t used < <(cd "$tools" && for name in goreleaser cyclonedx-gomod go-licenses helm4 cosign; do ls -d "$name".v* | sed "s/\.v/ v/"; done)
jq -n --arg version "$version" --arg commit "$commit" --arg go "$(go env GOVERSION)" --arg sums "$(sha256sum <go.sum | cut -d' ' -f1)" \
	--arg used "$(printf '%s\n' "${used[@]}")" '"https://github.com/istiod-lite/istiod-lite" as $home | {
	buildDefinition: {
		buildType: ($home + "/blob/main/docs/releases.md"),
		externalParameters: {version: $version},
		internalParameters: {go: $go, tools: ($used | split("\n") | map(split(" ") | {(.[0]): .[1]}) | add)},
		resolvedDependencies: [
			{uri: ("git+" + $home + "@" + $commit), digest: {gitCommit: $commit}},
			{name: "go.sum", digest: {sha256: $sums}}
		]
	},
	runDetails: {builder: {id: ($home + "/blob/main/deploy/release/release.sh")}}
}' >"$parts/predicate.json"
deploy/release/sign.sh "$out" "$parts/predicate.json"
echo "$out has the release $version of the commit $commit" >&2
