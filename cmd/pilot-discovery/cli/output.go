package cli

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"sigs.k8s.io/yaml"

	"github.com/istiod-lite/istiod-lite/api/diag"
	"github.com/istiod-lite/istiod-lite/cmd/terminal"
	"github.com/istiod-lite/istiod-lite/pilot/debug"
)

// format is the value of -o, one of a list of names.
type format struct {
	value *string
	names []string
}

func (f *format) String() string {
	if f.value == nil {
		return ""
	}
	return *f.value
}

func (f *format) Type() string { return "format" }

func (f *format) Set(text string) error {
	if slices.Contains(f.names, text) {
		*f.value = text
		return nil
	}
	meant := ""
	if near := diag.Nearest(text, f.names); near != "" {
		meant = fmt.Sprintf(": did you mean %q?", near)
	}
	return fmt.Errorf("unknown output format %q%s (the formats are %s)", text, meant, strings.Join(f.names, ", "))
}

// ListFormats are the formats of commands that print lists or answers. The default, table, omits some columns of wide.
func ListFormats() []string { return []string{"table", "wide", "json", "yaml", "name"} }

// OutputFlag adds -o with the formats of a command, the default first. It rejects other values, and shells complete
// these.
func OutputFlag(c *cobra.Command, value *string, names ...string) {
	*value = names[0]
	c.Flags().VarP(&format{value, names}, "output", "o", strings.Join(names, ", "))
	CompleteFlag(c, "output", names...)
}

// CompleteFlag adds completions to the values of a flag.
func CompleteFlag(c *cobra.Command, name string, values ...string) {
	if err := c.RegisterFlagCompletionFunc(name, cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp)); err != nil {
		panic(err) // there is no such flag, or it already has a completion
	}
}

// SuggestFlag returns the error for an unknown flag, with the most similar flag of the command.
func SuggestFlag(c *cobra.Command, err error) error {
	name, found := strings.CutPrefix(err.Error(), "unknown flag: --")
	if !found {
		return err
	}
	var known []string
	c.Flags().VisitAll(func(f *pflag.Flag) {
		if !f.Hidden {
			known = append(known, f.Name)
		}
	})
	name, _, _ = strings.Cut(name, "=")
	if near := diag.Nearest(name, known); near != "" {
		return fmt.Errorf("%w: did you mean --%s?", err, near)
	}
	return fmt.Errorf("%w: see %s --help", err, c.CommandPath())
}

// Colors reports whether the output of a command may have colours.
func Colors(c *cobra.Command, getenv func(string) string) (bool, error) {
	mode := ""
	if f := c.Flag("color"); f != nil {
		mode = f.Value.String()
	}
	return terminal.Color(mode, c.OutOrStdout(), getenv)
}

// Painter adds colours to the output of a command on a terminal.
type Painter bool

// Escape sequences of colours on a terminal.
const (
	Red   = "31"
	Green = "32"
	Amber = "33"
	Dim   = "90"
)

// Painted returns the Painter for the output of a command, or an error for an invalid --color.
func Painted(c *cobra.Command, getenv func(string) string) (Painter, error) {
	yes, err := Colors(c, getenv)
	return Painter(yes), err
}

// Paint returns a text in a colour, or unchanged if the output has no colours.
func (p Painter) Paint(color, text string) string {
	if !p || text == "" {
		return text
	}
	return "\x1b[" + color + "m" + text + "\x1b[0m"
}

// WatchFlag adds -w to a command.
func WatchFlag(c *cobra.Command, watch *bool) {
	c.Flags().BoolVarP(watch, "watch", "w", false, "print again after each change, until Ctrl-C")
}

// watchInterval is the time between two updates of a watch.
const watchInterval = 2 * time.Second

// ErrOneInput is returned for --watch with -f -.
var ErrOneInput = errors.New("--watch: the standard input is read once only: name a file or a directory by -f")

// Watched prints the output of show once, or repeatedly if watch is set: on a terminal it replaces the previous output,
// elsewhere it prints the output only if it changed. It waits at least nine times as long as the last call of show
// took, so that reading a large cluster takes a tenth of the time at most. It ends with the command's context, which a
// signal cancels.
func Watched(c *cobra.Command, watch bool, show func(io.Writer) error) error {
	ctx, stop := signal.NotifyContext(c.Context(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	c.SetContext(ctx)
	var last []byte
	w := c.OutOrStdout()
	for {
		var out bytes.Buffer
		begin := time.Now()
		err := show(&out)
		if watch && ctx.Err() != nil {
			return nil // the error only says that the watch was interrupted
		}
		pause := max(watchInterval, 9*time.Since(begin))
		if !watch || err != nil && out.Len() == 0 && last == nil {
			_, _ = w.Write(out.Bytes())
			return err
		}
		if err != nil && out.Len() == 0 {
			fmt.Fprintln(&out, "error:", terminal.Lines(err.Error()))
		}
		switch text := out.Bytes(); {
		case terminal.Is(w):
			fmt.Fprintf(w, "\x1b[H\x1b[2J%s", text)
		case !bytes.Equal(last, text):
			_, _ = w.Write(text)
		}
		last = append([]byte{}, out.Bytes()...)
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(pause):
		}
	}
}

// PrintValue writes a value as indented JSON, or as YAML.
func PrintValue(w io.Writer, v any, output string) error {
	var text []byte
	var err error
	if output == "yaml" {
		text, err = yaml.Marshal(v)
	} else if text, err = json.MarshalIndent(v, "", "  "); err == nil {
		text = append(text, '\n')
	}
	if err != nil {
		return err
	}
	_, err = w.Write(text)
	return err
}

// PrintSorted prints each name of a list once, in order. It sorts the list.
func PrintSorted(w io.Writer, list []string) error {
	slices.Sort(list)
	for _, name := range slices.Compact(list) {
		if _, err := fmt.Fprintln(w, name); err != nil {
			return err
		}
	}
	return nil
}

// Tabular reports whether an output format is meant for people.
func Tabular(output string) bool { return output == "table" || output == "wide" }

// TellIncomplete prints which replicas did not answer or have another version.
func TellIncomplete(w io.Writer, list []debug.Replica) {
	for _, line := range debug.Incomplete(list) {
		fmt.Fprintf(w, "\n%s\n", terminal.Plain(line))
	}
}

// Bytes returns a number of bytes as people write it, such as 1.5 MB.
func Bytes(n int64) string {
	switch {
	case n >= 1e9:
		return fmt.Sprintf("%.2f GB", float64(n)/1e9)
	case n >= 1e6:
		return fmt.Sprintf("%.1f MB", float64(n)/1e6)
	case n >= 1e3:
		return fmt.Sprintf("%.1f kB", float64(n)/1e3)
	default:
		return fmt.Sprintf("%d B", n)
	}
}
