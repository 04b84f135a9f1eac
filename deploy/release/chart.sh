#!/usr/bin/env bash
# chart.sh CHART VERSION NOTES DIR: packages a chart into the folder DIR, with this version and with the changes that
# the release notes list as an annotation for Artifact Hub. HELM4 names Helm 4, by default helm4 in the PATH. With
# SOURCE_DATE_EPOCH the archive is the same each time.
set -euo pipefail

usage='usage: chart.sh CHART VERSION NOTES DIR'
chart=${1:?$usage} version=${2:?$usage} notes=${3:?$usage} out=${4:?$usage}
parts=$(mktemp -d)
trap 'rm -rf "$parts"' EXIT
cp -R "$chart" "$parts"
copy=$parts/$(basename "$chart")
was=$(sed -n 's/^version: //p' "$copy/Chart.yaml")
sed -i "s/${was//./\\.}/$version/g" "$copy/Chart.yaml"
# An item of the notes may have several lines, and ends before the next item, heading or empty line.
awk '
	function flush() { if (item != "") print item; item = "" }
	/^- / { flush(); item = substr($0, 3); next }
	/^  [^ ]/ && item != "" { sub(/^ +/, ""); item = item " " $0; next }
	{ flush() }
	END { flush() }' "$notes" | python3 -c '
import json, sys
for n, line in enumerate(sys.stdin):
    if n == 0:
        print("  artifacthub.io/changes: |")
    print("    - " + json.dumps(line.rstrip("\n"), ensure_ascii=False))' >>"$copy/Chart.yaml"
"${HELM4:-helm4}" package "$copy" --destination "$out" >&2
