package cli

import (
	"errors"
	"fmt"
	"regexp"
	"strings"

	"github.com/spf13/cobra"
)

// Forms of cobra's errors about unknown, missing and surplus arguments and flags.
var (
	wrongArguments = regexp.MustCompile(`^(?:accepts .*|requires at least .*), (?:only )?received (\d+)$`)
	missingFlags   = regexp.MustCompile(`^required flag\(s\) (.*) not set$`)
	missingOne     = regexp.MustCompile(`^at least one of the flags in the group \[(.*)\] is required$`)
	together       = regexp.MustCompile(`^if any flags in the group \[.*\] are set none of the others can be; \[(.*)\] were all set$`)
)

// Usage returns the error of a command as it is printed. It adds the usage line and an example to errors about
// arguments.
func Usage(c *cobra.Command, err error) error {
	text := err.Error()
	var says string
	if m := wrongArguments.FindStringSubmatch(text); m != nil {
		says = "the arguments do not fit"
		if m[1] == "0" {
			says = "the arguments are missing"
		}
	} else if m := missingFlags.FindStringSubmatch(text); m != nil {
		says = "it needs --" + strings.ReplaceAll(strings.ReplaceAll(m[1], `"`, ""), ", ", " and --")
	} else if m := missingOne.FindStringSubmatch(text); m != nil {
		says = "it needs one of --" + strings.ReplaceAll(m[1], " ", ", --")
	} else if m := together.FindStringSubmatch(text); m != nil {
		return errors.New("--" + strings.ReplaceAll(m[1], " ", " and --") + " exclude each other: write one of them")
	} else {
		return err
	}
	example, _, _ := strings.Cut(c.Example, "\n")
	path := c.Root().Name() + strings.TrimPrefix(c.CommandPath(), c.Root().Name())
	_, arguments, _ := strings.Cut(c.Use, " ")
	return fmt.Errorf("%s: %s: write %s %s\nfor example: %s", path, says, path, arguments, strings.TrimSpace(example))
}
