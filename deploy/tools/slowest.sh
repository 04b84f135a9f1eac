#!/usr/bin/env bash
# slowest.sh GOTESTSUM DIR BUDGET: prints the packages that used more CPU than BUDGET allows them, the ten packages that used most, and the ten tests that took longest, from
# what the stages of `make test` have left in DIR: cpu.txt (see cpu.sh) and the events of go test. It never fails.
set -uo pipefail
shopt -s nullglob

gotestsum=$1 dir=$2 budget=$3
if [[ -s $dir/cpu.txt ]]; then
	sums=$(awk '{ all[$2] += $1 } END { for (p in all) printf "%8.1f %s\n", all[p], p }' "$dir/cpu.txt" | sort -rn)
	echo
	echo "CPU seconds of the packages that used most:"
	head <<<"$sums"
	awk 'NR == FNR { if (!/^#/) allowed[$3] = $1; next }
		$2 in allowed && $1 > allowed[$2] { printf "%8.1f %s, whose budget is %d\n", $1, $2, allowed[$2] }' "$budget" - <<<"$sums" | sed '1i Packages over budget:'
fi
events=("$dir"/*.json)
if ((${#events[@]})); then
	echo "The tests that took longest:"
	cat "${events[@]}" | "$gotestsum" tool slowest --num 10 2>/dev/null | head -10 | sed 's/^/  /'
fi
exit 0
