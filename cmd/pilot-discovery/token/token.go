package token

import (
	"errors"
	"fmt"
	"io/fs"
	"time"

	"github.com/spf13/cobra"

	tokens "github.com/istiod-lite/istiod-lite/citadel/token"
)

// Command returns the command pilot-discovery token.
func Command() *cobra.Command {
	var dir string
	var ttl time.Duration
	c := &cobra.Command{
		Use:   "token NAMESPACE SERVICEACCOUNT --stateDir DIRECTORY",
		Short: "Print a token of a service account, for a control plane without Kubernetes",
		Long: `Print a token of a service account, for a control plane without Kubernetes.

With it a proxy gets its certificate from the control plane that has the same --stateDir. Read
access to that directory is sufficient and necessary to make tokens. In Kubernetes the API server
makes tokens: kubectl create token.`,
		Example: `  pilot-discovery token default reviews --stateDir ./state >istio-token`,
		Args:    cobra.ExactArgs(2),
		RunE: func(c *cobra.Command, args []string) error {
			if dir == "" {
				return fmt.Errorf("no --stateDir: name the state directory of the control plane")
			}
			key, err := tokens.LoadKey(dir)
			if errors.Is(err, fs.ErrNotExist) {
				return fmt.Errorf("--stateDir: start the control plane with this directory first: %w", err)
			}
			if err != nil {
				return fmt.Errorf("--stateDir: %w", err)
			}
			text, err := key.Issue(args[0], args[1], ttl, time.Now())
			if err != nil {
				return err
			}
			_, err = fmt.Fprintln(c.OutOrStdout(), text)
			return err
		},
	}
	c.Flags().StringVar(&dir, "stateDir", "", "state directory of the control plane")
	c.Flags().DurationVar(&ttl, "ttl", time.Hour, "validity of the token, at most 24h")
	return c
}
