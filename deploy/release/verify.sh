#!/usr/bin/env bash
# verify.sh DIR [PUBLIC_KEY]: checks a release as a company can that adopts it: its signatures, checksums and
# provenance; that archives, images, charts and lists of modules agree with each other; and that the programs run. It
# exits with 1 at the first fault. Without PUBLIC_KEY it trusts the key in DIR, which proves only that the files belong
# together. It needs cosign, go, jq and Helm 4 (HELM4, by default helm4 in the PATH), and no network.
set -euo pipefail
# By default, cosign reads files of up to 128 MB. An image may be larger.
export LC_ALL=C COSIGN_MAX_ATTACHMENT_SIZE=2GB

dir=$(cd "${1:?usage: verify.sh DIR [PUBLIC_KEY]}" && pwd) key=$(realpath "${2:-$1/cosign.pub}") helm=${HELM4:-helm4}
parts=$(mktemp -d)
trap 'rm -rf "$parts"' EXIT
fail() { echo "verify.sh: $*" >&2; exit 1; }
check() { # WHAT COMMAND...
	"${@:2}" >"$parts/output" 2>&1 || { cat "$parts/output" >&2; fail "not ok: $1"; }
	echo "ok: $1"
}
cd "$dir"

# Signatures, checksums, provenance.
[[ -n ${2:-} ]] || echo 'WARNING: the key is the one beside the files: it proves that they belong together, not who made them' >&2
[[ -r $key ]] || fail "there is no key $key"
cmp -s "$key" cosign.pub || fail "cosign.pub is not the trusted key"
hint=$(sed '/^-----/d' "$key" | base64 -d | sha256sum | cut -d' ' -f1 | sed 's/../\\x&/g') || fail "$key is no public key in PEM"
for bundle in checksums provenance; do
	[[ $(jq -r .verificationMaterial.publicKey.hint "$bundle.sigstore.json") == "$(printf '%b' "$hint" | base64)" ]] ||
		fail "$bundle.sigstore.json does not name the trusted key"
done
check 'signature of checksums.txt in checksums.sigstore.json' cosign verify-blob --key "$key" --bundle checksums.sigstore.json --insecure-ignore-tlog checksums.txt
check 'checksums of checksums.txt' sha256sum --check --strict --quiet checksums.txt
sed 's/^[0-9a-f]*  //' checksums.txt | sort >"$parts/listed"
find . -mindepth 1 -printf '%P\n' | grep -vE '^(checksums\.(txt|sigstore\.json)|provenance\.sigstore\.json|cosign\.pub)$' | sort >"$parts/found"
check 'no file is missing or too many' diff "$parts/listed" "$parts/found"
jq -r .dsseEnvelope.payload provenance.sigstore.json | base64 -d >"$parts/statement" || fail "provenance.sigstore.json has no statement"
check 'provenance.sigstore.json has the statement in provenance.json' cmp "$parts/statement" provenance.json
jq -r '.subject[] | .digest.sha256 + "  " + .name' provenance.json >"$parts/subjects"
check 'provenance has the files that checksums.txt has' diff <(grep -v '  provenance.json$' checksums.txt) <(grep -v '[:/].*:' "$parts/subjects")
while read -r file; do
	[[ $file == provenance.json ]] || check "provenance.sigstore.json attests $file" cosign verify-blob-attestation --key "$key" --bundle provenance.sigstore.json \
		--type slsaprovenance1 --insecure-ignore-tlog "$file"
done <"$parts/listed"
version=$(jq -r .predicate.buildDefinition.externalParameters.version provenance.json)
[[ $(head -1 RELEASE_NOTES.md) == "# istiod-lite $version" ]] || fail "RELEASE_NOTES.md is not about $version"

# Archives and lists of modules.
for arch in amd64 arm64; do
	at=$parts/$arch
	mkdir "$at"
	check "archive for $arch" tar -xzf "istiod-lite_${version}_linux_$arch.tar.gz" -C "$at"
	check "licences in the archive for $arch" cmp "$at/THIRD_PARTY_LICENSES.txt" THIRD_PARTY_LICENSES.txt
	[[ -s $at/LICENSE ]] || fail "the archive for $arch has no LICENSE"
	for program in pilot-discovery pilot-agent; do
		for shell in bash zsh fish; do
			[[ -s $at/completions/$program.$shell ]] || fail "the archive for $arch has no completions of $program for $shell"
		done
		go version -m "$at/$program" >"$at/$program.txt" || fail "$program for $arch is no program of Go"
		for setting in "GOARCH=$arch" GOOS=linux CGO_ENABLED=0 -trimpath=true; do
			grep -qF -- "$setting" "$at/$program.txt" || fail "$program for $arch was not built with $setting"
		done
		grep -qaF "$version" "$at/$program" || fail "$program for $arch does not have the version $version"
		list=${program}_${version}_linux_$arch.cdx.json
		awk '$1 == "dep" { print $2 "@" $3 }' "$at/$program.txt" | sort >"$at/built"
		check "modules of $program for $arch" diff "$at/built" <(jq -r '.components[] | select(.name != "std") | .name + "@" + .version' "$list" | sort)
		[[ $(jq -r '.metadata.properties[] | select(.name == "cdx:gomod:binary:hash:SHA-256") | .value' "$list") == "$(sha256sum <"$at/$program" | cut -d' ' -f1)" ]] ||
			fail "$list is not about $program for $arch"
		jq -e --arg at "goarch=$arch&goos=linux" '[.metadata.component, .components[]] | all(.purl | contains($at))' "$list" >/dev/null ||
			fail "$list has the URL of a package for another platform"
		jq -e '.components | all(.name == "std" or (.licenses | length > 0))' "$list" >/dev/null || fail "$list has a module without a licence"
		while IFS=@ read -r module _; do
			grep -qE "^---- ${module//./\\.}(/|$)" THIRD_PARTY_LICENSES.txt || fail "THIRD_PARTY_LICENSES.txt has no licence of $module"
		done < <(cat "$at/built" && echo std)
	done
done
if [[ $(uname -m) == aarch64 ]]; then here=arm64; else here=amd64; fi
for program in pilot-discovery pilot-agent; do
	ran=$("$parts/$here/$program" version --short) || fail "$program does not run"
	[[ $ran == "$version" ]] || fail "$program says that it is $ran"
	echo "ok: $program runs"
done

# Images: each blob has its digest, and each image has the programs of the archive.
image=$parts/image
mkdir "$image"
check 'archive of the image' tar -xf "istiod-lite_${version}_image.tar" -C "$image"
blob() { # DIGEST
	[[ $(sha256sum <"$image/blobs/sha256/${1#sha256:}" | cut -d' ' -f1) == "${1#sha256:}" ]] || fail "a blob of the image is not $1"
	cat "$image/blobs/sha256/${1#sha256:}"
}
index=$(jq -er '.manifests | select(length == 1) | .[0].digest' "$image/index.json") || fail 'the image has not one index'
name=$(jq -r '.manifests[0].annotations["io.containerd.image.name"]' "$image/index.json")
grep -qxF "${index#sha256:}  $name" "$parts/subjects" || fail "provenance does not have the image $name with $index"
[[ $name == *:"$version" ]] || fail "the image $name is not $version"
platforms=$(blob "$index" | jq -r '.manifests[] | .platform.os + "/" + .platform.architecture + " " + .digest' | sort)
[[ $(cut -d' ' -f1 <<<"$platforms" | paste -sd' ') == 'linux/amd64 linux/arm64' ]] || fail "the image is for ${platforms//$'\n'/, }"
while read -r platform manifest; do
	blob "$manifest" >"$parts/manifest"
	arch=$(blob "$(jq -r .config.digest "$parts/manifest")" | jq -r .architecture)
	[[ linux/$arch == "$platform" ]] || fail "the image for $platform is for $arch"
	mkdir "$image/$arch"
	blob "$(jq -r '.layers[0].digest' "$parts/manifest")" | tar -xz -C "$image/$arch"
	for program in pilot-discovery pilot-agent; do
		check "$program in the image for $arch" cmp "$image/$arch/usr/local/bin/$program" "$parts/$arch/$program"
	done
done <<<"$platforms"

# Charts.
for chart in base istiod gateway; do
	check "chart $chart" "$helm" show chart "$chart-$version.tgz"
	grep -qxF "version: $version" "$parts/output" || fail "the chart $chart does not have the version $version"
	grep -qxF "appVersion: $version" "$parts/output" || fail "the chart $chart is not for the version $version"
	[[ $chart != istiod ]] || grep -qF "image: $name" "$parts/output" || fail "the chart istiod does not name the image $name"
done
check 'the chart istiod makes a Deployment with the image' grep -F "image: \"$name\"" <("$helm" template "istiod-$version.tgz")
echo "the release $version is as it was signed"
