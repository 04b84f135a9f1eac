#!/usr/bin/env bash
# Runs the tests of random histories and properties with other seeds each time, until one is red or somebody stops it.
#   soak.sh CHECKS LENGTH: so many checks of each property a round, and so long through histories of the whole server.
# Each round also renews certificates of one minute for LENGTH, beside real Envoys.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

# The tests that draw from rapid or ask for a seed, as "FOLDER NAME".
tests() { deploy/tools/tests.sh 'rapid\.(Check|MakeCheck)\(|histories\.Seed\(' | grep -v '^./deploy/histories '; }

for ((round = 1; ; round++)); do
	echo "round $round"
	while read -r dir names; do
		length=()
		if [[ $dir == ./pilot/bootstrap ]]; then
			length=(-histories.for="$2")
		fi
		RAPID_SEED=0 RAPID_CHECKS=$1 go test -count=1 -timeout 24h -run "^($names)\$" "$dir" "${length[@]}"
	done < <(tests | awk '{ all[$1] = all[$1] (all[$1] ? "|" : "") $2 } END { for (d in all) print d, all[d] }' | sort)
	go test -count=1 -timeout 24h -run '^TestFaults$' ./deploy/e2e/agentfaults -args -renewals.for="$2"
done
