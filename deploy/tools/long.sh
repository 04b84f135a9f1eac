#!/usr/bin/env bash
# long.sh GOTESTSUM MINUTES FIRST PART:TAKES...: runs the targets PART of the Makefile, one after the other. It begins with
# FIRST or, without it, with a part that depends on the number of commits, so that each gets its turn. TAKES is the minutes
# of a part. With MINUTES, a part that would end later does not begin, and a part that still runs then is ended. Neither is
# a failure. At the end it lists failures, as summary.sh does, and the parts that it did not reach.
set -uo pipefail

gotestsum=$1 minutes=$2 first=$3
shift 3
parts=("$@") n=$# start=0
if [[ -n $first ]]; then
	until [[ $start -lt $n && ${parts[start]%:*} == "$first" ]] || ((start > n)); do ((start++)); done
	((start < n)) || { echo "no part is named $first; there are ${parts[*]%:*}" >&2; exit 2; }
else
	start=$(($(git rev-list --count HEAD 2>/dev/null || echo 0) % n))
fi
ran=() left=()
mkdir -p bin/test
for ((i = 0; i < n; i++)); do
	part=${parts[(start + i) % n]%:*} takes=${parts[(start + i) % n]#*:}
	rm -f bin/test/"$part".{ok,json,log}
	status=0
	if [[ -z $minutes ]]; then
		make --no-print-directory "$part" || status=$?
	elif ((SECONDS + takes * 60 > minutes * 60)); then
		status=124
	else
		timeout --kill-after=30 $((minutes * 60 - SECONDS)) make --no-print-directory "$part" || status=$?
	fi
	if ((status == 124)); then
		left+=("$part")
		continue
	fi
	((status)) || touch bin/test/"$part".ok
	ran+=("$part")
	echo "$part: ended at minute $((SECONDS / 60))"
done
status=0
((${#ran[@]} == 0)) || deploy/tools/summary.sh "$gotestsum" bin/test "${ran[@]}" || status=1
((${#left[@]} == 0)) || echo "not reached in $minutes minutes: ${left[*]}; make test-long FIRST=${left[0]} begins there"
exit $status
