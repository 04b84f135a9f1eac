#!/usr/bin/env bash
# notes.sh VERSION CHANGELOG: prints the release notes of a version: the section of the changelog with its name or, if
# it has none, the section Unreleased.
set -euo pipefail

version=${1:?usage: notes.sh VERSION CHANGELOG} changelog=${2:?usage: notes.sh VERSION CHANGELOG}
section=Unreleased
if grep -qxF "## $version" "$changelog"; then section=$version; fi
text=$(awk -v heading="## $section" '/^## / { inside = $0 == heading; next } inside' "$changelog")
[[ $text == *[![:space:]]* ]] || { echo "notes.sh: $changelog has no section $version and nothing in the section Unreleased" >&2; exit 1; }
printf '# istiod-lite %s\n%s\n' "$version" "$text"
