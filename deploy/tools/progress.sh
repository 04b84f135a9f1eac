#!/usr/bin/env bash
# progress.sh [-v] WHAT COMMAND...: runs a command, passes on what it prints, and says after every minute in which nothing was printed that it still runs.
# With -v the command is one of go with -v, which prints the name of each package that it compiles: these are counted instead.
set -euo pipefail

name='' count=0 last=''
# The name of a package; a complaint has spaces in it.
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
