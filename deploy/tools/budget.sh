#!/usr/bin/env bash
# budget.sh CPU BUDGET [write]: compares the CPU seconds of each package in the file CPU (see cpu.sh) with the file BUDGET, whose lines are "ALLOWED MEASURED FOLDER". It
# fails if a package used more than twice its allowance. With write it writes the measured figures to BUDGET: a package keeps its allowance, and a new one gets a quarter
# more than it used, and at least 2 seconds. To change an allowance, remove its line first.
set -euo pipefail

cpu=$1 budget=$2
awk -v write="${3:-}" '
	/^#/ { head = head $0 "\n"; next }
	FILENAME == ARGV[1] { allowed[$3] = $1; next }
	{ used[$2] += $1 }
	END {
		for (p in used) {
			if (!(p in allowed)) {
				if (!write) printf "%8.1f %s has no budget\n", used[p], p
				allowed[p] = int(used[p] * 1.25) + 1
				if (allowed[p] < 2) allowed[p] = 2
			}
			if (used[p] > 2 * allowed[p]) { printf "%8.1f %s, more than twice its budget of %d\n", used[p], p, allowed[p]; bad = 1 }
			all += used[p]
			line[++n] = sprintf("%d %.1f %s", allowed[p], used[p], p)
		}
		printf "%8.1f CPU seconds in the tests of %d packages\n", all, n
		if (write) {
			printf "%s", head >write
			close(write)
			for (i = 1; i <= n; i++) print line[i] | ("sort -k1,1nr -k2,2nr -k3 >>" write)
		}
		exit bad
	}' "$budget" "$cpu"
