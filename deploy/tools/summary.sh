#!/usr/bin/env bash
# summary.sh GOTESTSUM DIR STAGE...: says what failed, with the last lines of each test, from what the stages of `make test` have left in DIR: STAGE.json, the
# events of go test; STAGE.log, what another command printed; STAGE.ok where all went well. It fails if a stage did.
set -euo pipefail

gotestsum=$1 dir=$2
shift 2
shopt -s nullglob
failed=() events=("$dir"/*.json)
for stage; do [[ -e $dir/$stage.ok ]] || failed+=("$stage"); done

echo
for stage in "${failed[@]}"; do
	if [[ -e $dir/$stage.log ]]; then
		echo "--- FAIL: $stage"
		tail -n 20 "$dir/$stage.log"
		echo
	elif [[ ! -s $dir/$stage.json ]]; then
		echo "--- FAIL: $stage: none of its tests ran; why is said above"
		echo
	fi
done
# gotestsum prints all output of a failed test; the time it took is that of reading the events.
if ((${#events[@]})); then
	"$gotestsum" --raw-command --format none --hide-summary skipped -- cat "${events[@]}" | awk -v keep=20 '
		function flush(    i) {
			if (n > keep) {
				print "    (" n - keep " lines before these: see above; of them the words of the test:)"
				for (i = said = 0; i < n - keep; i++) if (line[i] ~ /^ *[a-z0-9_]+_test\.go:[0-9]+: / && said++ < 10) print substr(line[i], 1, 500)
			}
			for (i = (n > keep ? n - keep : 0); i < n; i++) print line[i]
			n = 0
		}
		/^DONE / { sub(/ in [0-9.hms]+$/, "") }
		/^=== FAIL: / { # === FAIL: PACKAGE TEST (TIME), and no test where the package itself failed; here in the words of go test
			flush()
			if ($4 ~ /^\(/) print "--- FAIL: package " $3; else print "--- FAIL: " $4, $5, "in " $3
			next
		}
		/^=== (Failed|Errors)$/ { flush(); if ($2 == "Errors") print "errors:"; next }
		/^DONE / { flush(); print; next }
		{ line[n++] = $0 }
		END { flush() }' || true
fi
if ((${#failed[@]})); then
	echo "FAILED: ${failed[*]}"
	exit 1
fi
echo "all passed: $*"
