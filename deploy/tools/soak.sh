#!/usr/bin/env bash
# soak.sh CHECKS LENGTH [MINUTES]: runs the tests that draw at random, each with a seed of its own that is new each
# time, until one fails or the script is stopped.
#
# Each property makes CHECKS draws, and the histories of the whole server go on for LENGTH (such as 10m). Renewals of
# certificates of one minute, beside real Envoys, go on for LENGTH too. The order is drawn for each round, so that every
# run begins with another test. With MINUTES there is one round. No test begins after that time, and one that runs then
# ends with the draws that it has made.
#
# It prints a line for each test: its seed, how many draws it made, and the seconds of CPU. If one fails, the last line
# is the command that repeats it.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

checks=$1 length=$2 minutes=${3:-}
out=bin/soak
mkdir -p "$out"
TIMEFORMAT='%U %S'

# The tests that draw from rapid or ask for a seed, as "FOLDER NAME".
tests() {
	deploy/tools/tests.sh 'rapid\.(Check|MakeCheck)\(|histories\.Seed\(' | grep -v '^./deploy/'
	echo ./deploy/e2e/agentfaults TestFaults
}

# left prints how long a test may run, as a duration of Go.
left() {
	if [[ $minutes ]]; then
		echo "$((minutes * 60 - SECONDS + 60))s" # a minute to shrink a failure, and to end
	else
		echo 24h
	fi
}

# run FOLDER NAME runs one test with a new seed.
run() {
	local dir=$1 name=$2 seed status=0 program log=$PWD/$out/test.log timeout options=() draws used
	seed=$((RANDOM << 30 | RANDOM << 15 | RANDOM | 1))
	program=$PWD/$out/$(tr / _ <<<"${dir#./}").test
	case $name in
	TestFaults) options=(-renewals.for="$length") ;;
	TestHistories) [[ $dir == ./pilot/bootstrap ]] && options=(-histories.for="$length") ;;
	esac
	[[ -e $program ]] || go test -c -vet=off -o "$program" "$dir"
	timeout=$(left)
	# The output of the program is redirected inside, so that what time prints is not among it.
	{ time (cd "$dir" && RAPID_SEED=$seed RAPID_CHECKS=$checks "$program" -test.v -test.run "^$name\$" -test.timeout "$timeout" "${options[@]}" >"$log" 2>&1); } 2>"$out/time" || status=$?
	draws=$(sed -n 's/.*\[rapid\] OK, passed \([0-9]*\) tests.*/\1 draws/p; s/.*: \([0-9]* histories\)$/\1/p; s/^--- SKIP.*/skipped/p' "$log" | paste -sd, | sed 's/,/, /g')
	used=$(awk '{ printf "%.1f", $1 + $2 }' "$out/time")
	if [[ $minutes ]] && grep -q '^panic: test timed out' "$log"; then
		echo "cut  $dir $name: seed $seed, not ended when the time was over"
		return
	fi
	printf '%-4s %s %s: seed %d, %s%s s of CPU\n' "$([[ $status == 0 ]] && echo ok || echo FAIL)" "$dir" "$name" "$seed" "${draws:+$draws, }" "$used"
	if [[ $status != 0 ]]; then
		cat "$log"
		echo
		local again
		again=$(grep -oE -- '-histories\.seed=[0-9]+' "$log" | head -1 || true)
		echo "$dir $name fails with seed $seed. This repeats it:"
		echo "    RAPID_SEED=$seed RAPID_CHECKS=$checks go test -count=1 -timeout 24h $dir -run '^$name\$'${again:+ $again}"
		exit 1
	fi
}

rm -f "$out"/*.test # of another state of the tree
for ((round = 1; ; round++)); do
	echo "round $round"
	while read -r dir name; do
		if [[ $minutes ]] && ((SECONDS >= minutes * 60)); then
			echo "$minutes minutes are over: the other tests are left out"
			exit 0
		fi
		run "$dir" "$name"
	done < <(tests | sort -u | shuf)
	[[ ! $minutes ]] || exit 0
done
