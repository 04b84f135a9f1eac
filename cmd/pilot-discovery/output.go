package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/istiod-lite/istiod-lite/api/diag"
)

// format is the value of -o: one of a few names.
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
	for _, name := range f.names {
		if text == name {
			*f.value = text
			return nil
		}
	}
	return fmt.Errorf("unknown output format: %s; the formats are %s", diag.UnknownName(text, f.names), strings.Join(f.names, ", "))
}

// outputFlag adds -o with the formats of a command, the default first. Other values are refused, and shells complete
// these.
func outputFlag(c *cobra.Command, value *string, names ...string) {
	*value = names[0]
	c.Flags().VarP(&format{value, names}, "output", "o", strings.Join(names, ", "))
	completeFlag(c, "output", names...)
}

// completeFlag has shells complete the values of a flag.
func completeFlag(c *cobra.Command, name string, values ...string) {
	if err := c.RegisterFlagCompletionFunc(name, cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp)); err != nil {
		panic(err) // there is no such flag, or it has a completion
	}
}

// suggestFlag returns the error of a flag that a command does not have, with the one that was probably meant.
func suggestFlag(c *cobra.Command, err error) error {
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
