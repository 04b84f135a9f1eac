#!/usr/bin/env bash
# previous.sh DIR: builds the release before this one, which deploy/e2e/upgrade/previous.txt names by a tag or a commit: both
# programs and the charts, as DIR/previous-COMMIT. DIR/previous is a link to it. It builds only once. A shallow clone gets the
# commit from its remote. JOBS is the number of packages to compile in parallel.
set -euo pipefail

dir=${1:?usage: previous.sh DIR}
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
name=$(<"$root/deploy/e2e/upgrade/previous.txt")
dir=$(mkdir -p "$dir" && cd "$dir" && pwd)
cd "$root"
if ! git cat-file -e "$name^{tree}" 2>/dev/null; then
	git fetch --quiet --depth=1 origin "$name" ||
		{ echo "previous.sh: this clone has no $name, and its remote does not give it: git fetch --unshallow --tags" >&2; exit 1; }
	name=$(git rev-parse FETCH_HEAD)
fi
commit=$(git rev-parse --short=12 "$name^{commit}")
to=$dir/previous-$commit
if [[ ! -e $to ]]; then
	tmp=$(mktemp -d "$dir/build.XXXXXX")
	trap 'rm -rf "$tmp"' EXIT
	mkdir "$tmp/source" "$tmp/out"
	git archive "$commit" | tar -x -C "$tmp/source"
	echo "building the release before, $commit" >&2
	(
		cd "$tmp/source"
		level=$(sed -n 's/^const APILevel = "\(.*\)"/\1/p' cmd/version/*.go)
		export CGO_ENABLED=0 GOFLAGS='-trimpath -buildvcs=false -tags=grpcnotrace'
		"$root/deploy/tools/progress.sh" -v previous go build -v -p "${JOBS:-2}" \
			-ldflags "-s -w -X github.com/istiod-lite/istiod-lite/cmd/version.linked=$level-$commit" -o "$tmp/out/" \
			./cmd/pilot-discovery ./cmd/pilot-agent >&2
	)
	cp -r "$tmp/source/charts" "$tmp/out/charts"
	chmod -R a+rX "$tmp/out"
	mv "$tmp/out" "$to"
fi
cp "$root/deploy/e2e/upgrade/previous.txt" "$to/release"
ln -sfn "previous-$commit" "$dir/previous"
