package token

import (
	"errors"
	"fmt"
	"io/fs"
	"time"

	"github.com/spf13/cobra"

	tokens "github.com/istiod-lite/istiod-lite/citadel/token"
)

func Command() *cobra.Command {
	var dir string
	var ttl time.Duration
	c := &cobra.Command{
		Use:   "token NAMESPACE SERVICEACCOUNT --stateDir DIRECTORY",
		Short: "Print a token of a service account, for a control plane without Kubernetes",
		Long: `Print a token of a service account, for a control plane without Kubernetes.

With it a proxy gets its certificate from the control plane that has the same --stateDir. Whoever can read that directory can make tokens, and
nobody else. In Kubernetes tokens come from the API server: kubectl create token.`,
		Example: `  pilot-discovery token default reviews --stateDir ./state >istio-token`,
		Args:    cobra.ExactArgs(2),
		RunE: func(c *cobra.Command, args []string) error {
			if dir == "" {
				return fmt.Errorf("which control plane is it for? name its --stateDir")
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
	c.Flags().StringVar(&dir, "stateDir", "", "the control plane's directory")
	c.Flags().DurationVar(&ttl, "ttl", time.Hour, "how long the token is valid, a day at most")
	return c
}
