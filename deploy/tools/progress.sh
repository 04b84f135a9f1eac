#!/usr/bin/env bash
# progress.sh [-v] WHAT COMMAND...: runs a command and prints its output. After each minute without output it prints that
# the command is still running. With -v the command is go with -v, and the names of compiled packages are counted instead
# of printed.
set -euo pipefail

name='' count=0 last=''
# A line without spaces is the name of a package, and others are messages.
[[ $1 != -v ]] || { name='^[a-z0-9][^[:space:]:]*$'; shift; }
what=$1
shift
shown=0 text=
"$@" 2>&1 | while true; do
	status=0
	IFS= read -r -t 5 line || status=$?
	if ((status > 128)); then
		text+=$line # the beginning of a line that is not whole yet
	else
		line=$text$line text=''
		if [[ -n $name && $line =~ $name ]]; then
			count=$((count + 1)) last=$line
		elif ((status == 0)) || [[ -n $line ]]; then
			printf '%s\n' "$line"
			shown=$SECONDS
		fi
		((status == 0)) || break
	fi
	if ((SECONDS - shown >= 60)); then
		echo "$what: $((SECONDS / 60)) min${last:+, $count packages compiled, the last is $last}"
		shown=$SECONDS
	fi
done
