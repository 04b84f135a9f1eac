#!/usr/bin/env bash
# sign.sh DIR PREDICATE: states where the files of a release in the folder DIR come from, as an in-toto statement with
# the predicate of SLSA in the file PREDICATE, lists the files in checksums.txt, and signs both with cosign. Nothing is
# sent to a transparency log. COSIGN_KEY names the private key, a file or a key of a KMS, and COSIGN_PASSWORD is its
# password. Without COSIGN_KEY a key is made and thrown away.
set -euo pipefail

dir=$(cd "${1:?usage: sign.sh DIR PREDICATE}" && pwd) predicate=$(realpath "${2:?usage: sign.sh DIR PREDICATE}")
parts=$(mktemp -d) key=${COSIGN_KEY:-}
trap 'rm -rf "$parts"' EXIT
[[ -z $key || $key == *://* ]] || key=$(realpath "$key")
umask 022
# quiet prints the output of a command if it fails.
quiet() { "$@" >"$parts/output" 2>&1 || { cat "$parts/output" >&2; return 1; }; }
if [[ -z $key ]]; then
	echo 'WARNING: COSIGN_KEY is not set. The release is signed with a new key, which is thrown away. It proves only that the' >&2
	echo 'files belong together, and not who made them: do not publish it.' >&2
	export COSIGN_PASSWORD=
	(cd "$parts" && quiet cosign generate-key-pair)
	key=$parts/cosign.key
fi
cd "$dir"
rm -f provenance.* checksums.* cosign.pub
sums() { LC_ALL=C find . -maxdepth 1 -type f ! -name 'checksums.*' ! -name '*.sigstore.json' ! -name cosign.pub -printf '%P\n' | LC_ALL=C sort | xargs sha256sum; }
for image in *_image.tar; do
	jq -r --arg name "$(tar -xOf "$image" index.json | jq -r '.manifests[0].annotations["io.containerd.image.name"]')" \
		'(.manifests[0].digest | sub("sha256:"; "")) + "  " + $name' <(tar -xOf "$image" index.json)
done >"$parts/images"
cat <(sums) "$parts/images" | jq -R . | jq -s --slurpfile predicate "$predicate" '{
	_type: "https://in-toto.io/Statement/v1",
	subject: map(capture("^(?<sum>[0-9a-f]{64})  (?<name>.+)$") | {name, digest: {sha256: .sum}}),
	predicateType: "https://slsa.dev/provenance/v1",
	predicate: $predicate[0]
}' >"$parts/provenance.json"
mv "$parts/provenance.json" .
sums >checksums.txt
cosign signing-config create --out "$parts/no-services.json"
cosign trusted-root create --out "$parts/no-roots.json"
sign() { quiet cosign "$@" --yes --key "$key" --signing-config "$parts/no-services.json" --trusted-root "$parts/no-roots.json"; }
sign sign-blob --bundle checksums.sigstore.json checksums.txt
sign attest-blob --statement provenance.json --bundle provenance.sigstore.json --type slsaprovenance1
cosign public-key --key "$key" >cosign.pub
chmod 644 -- *
