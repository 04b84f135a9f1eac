package terminal

import (
	"fmt"
	"io"
	"os"
	"slices"

	"golang.org/x/term"
)

// Modes returns the values of --color, the default first.
func Modes() []string { return []string{"auto", "always", "never"} }

// Color reports whether what is written to w may have colours, by --color: with auto, where w is a terminal that has
// them, unless NO_COLOR is set in the environment (no-color.org).
func Color(mode string, w io.Writer, getenv func(string) string) (bool, error) {
	switch mode {
	case "always":
		return true, nil
	case "never":
		return false, nil
	case "auto", "":
		return getenv("NO_COLOR") == "" && getenv("TERM") != "dumb" && Is(w), nil
	}
	return false, fmt.Errorf("--color=%s: write one of %v", mode, slices.Clone(Modes()))
}

// Is reports whether w is a terminal.
func Is(w io.Writer) bool {
	f, ok := w.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}
