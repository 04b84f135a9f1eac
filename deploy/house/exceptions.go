package house

import (
	"errors"
	"fmt"
	"io/fs"
	"strings"
)

// exceptionsFile lists the places where a rule may be broken, one a line: RULE | FILE | TEXT | REASON. TEXT is a part
// of the line that breaks the rule. The list only gets shorter.
const exceptionsFile = "deploy/house/exceptions.txt"

const maxExceptions = 100

type exception struct {
	rule, file, text string
	line             int
	used             bool
}

// exceptions are the entries of exceptionsFile.
type exceptions struct{ list []exception }

func readExceptions(tree fs.FS, add report) (*exceptions, error) {
	text, err := fs.ReadFile(tree, exceptionsFile)
	if errors.Is(err, fs.ErrNotExist) {
		return &exceptions{}, nil
	} else if err != nil {
		return nil, fmt.Errorf("read the exceptions: %w", err)
	}
	x := &exceptions{}
	for i, line := range strings.Split(string(text), "\n") {
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		at := fmt.Sprintf("%s:%d", exceptionsFile, i+1)
		fields := strings.Split(line, " | ")
		if len(fields) != 4 || strings.TrimSpace(fields[2]) == "" || strings.TrimSpace(fields[3]) == "" {
			add("exceptions", at, "write RULE | FILE | TEXT | REASON")
			continue
		}
		x.list = append(x.list, exception{rule: fields[0], file: fields[1], text: fields[2], line: i + 1})
	}
	if n := len(x.list); n > maxExceptions {
		add("exceptions", exceptionsFile, "%d exceptions, at most %d are allowed: change the texts instead", n, maxExceptions)
	}
	return x, nil
}

// allows reports whether the line of a file may break the rule.
func (x *exceptions) allows(rule, file, line string) bool {
	for i := range x.list {
		if e := &x.list[i]; e.rule == rule && e.file == file && strings.Contains(line, e.text) {
			e.used = true
			return true
		}
	}
	return false
}

// checkUsed reports the exceptions that no line needs.
func (x *exceptions) checkUsed(add report) {
	for _, e := range x.list {
		if !e.used {
			add("exceptions", fmt.Sprintf("%s:%d", exceptionsFile, e.line), "%s has no line that needs this exception: delete it", e.file)
		}
	}
}
