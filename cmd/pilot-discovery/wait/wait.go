package wait

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/istiod-lite/istiod-lite/cmd/pilot-discovery/cli"
	"github.com/istiod-lite/istiod-lite/cmd/pilot-discovery/env"
	"github.com/istiod-lite/istiod-lite/cmd/pilot-discovery/input"
	"github.com/istiod-lite/istiod-lite/pilot/progress"
)

// flags are the flags of the command.
type flags struct {
	input.Cluster
	address    string
	output     string
	files      []string
	namespace  string
	generation int64
	newest     bool
	tokenFile  string
	timeout    time.Duration
	deleted    bool
	watch      bool
}

// Command returns the command pilot-discovery wait.
func Command(e *env.Env) *cobra.Command {
	f := &flags{}
	c := &cobra.Command{
		Use:   "wait [KIND/NAME.NAMESPACE...] [-f FILE]",
		Short: "Wait until all connected proxies have an object in force",
		Long: `Wait until the connected proxies have objects in force: each proxy that the object concerns has
acknowledged what it was sent, and everything that it subscribed to because of it, down to endpoints
and certificates. With --deleted, the command waits until what
deleted objects made is gone from the proxies. If the server knows no such object, because it was deleted before
the server started or its name is misspelt, that is in force, and a warning says so.

The server at --address answers for all replicas of its Service. While a replica cannot be asked,
the answer is unknown, and the command goes on waiting.

-f names the files that were applied. Each object in them is awaited in the version of the file: its
content, if the server reads it from files or it is a Secret, else the generation that the API server gave it.
The command asks the API server that kubectl would ask. Services and ConfigMaps have no generation: the server
asks its API server for what they contain now. An object that is named by an argument is awaited in
--generation, or else in the newest version that the server has read. Objects that the server reads from files
have no generation.

With --current, an object is awaited in the version that the API server has, also if the server is behind
or the version is replaced meanwhile. The server asks the API server.

A server on another host wants to know who asks: --token-file names the token of a service account with the
audience istio-ca, such as a projected volume of a Pod has. Service accounts may ask about objects of their
own namespace.

The exit code is 0 if all objects are in force, 79 if a proxy or the server rejects one, one was replaced by
a newer version or is deleted, or the time is over, and 1 if there is no answer, or none that this program
understands. An object that an argument names is deleted if the server knows no newer version for two seconds. An
object that concerns no proxy is in force too, and a warning gives the reason. With --watch the command prints
each change of the state until Ctrl-C, and takes no --timeout.`,
		Example: `  kubectl apply -f route.yaml && pilot-discovery wait -f route.yaml
  pilot-discovery wait VirtualService/reviews.shop --timeout 30s
  pilot-discovery wait HTTPRoute/reviews.shop --watch
  pilot-discovery wait VirtualService/web.shop --current --address istiod.istio-system:15014 --token-file /var/run/token
  kubectl delete -f route.yaml && pilot-discovery wait -f route.yaml --deleted
  pilot-discovery wait Gateway.networking.istio.io/edge.istio-system -o json`,
		RunE: f.run,
	}
	flags := c.Flags()
	flags.StringArrayVarP(&f.files, "filename", "f", nil, "file or directory with objects that were applied, or - for the standard input; "+
		"may be repeated")
	flags.StringVarP(&f.namespace, "namespace", "n", "default", "namespace of objects in files that name none")
	flags.Int64Var(&f.generation, "generation", 0, "metadata.generation of the object that the argument names; 0 for the newest version")
	flags.BoolVar(&f.newest, "current", false, "wait for the version that the API server has, not for the newest that the server has read")
	flags.StringVar(&f.tokenFile, "token-file", "", "file with the token of a service account, for a server on another host")
	flags.BoolVar(&f.deleted, "deleted", false, "wait until what the objects made is gone from the proxies; the objects were deleted")
	flags.DurationVar(&f.timeout, "timeout", time.Minute, "maximum time to wait")
	flags.BoolVarP(&f.watch, "watch", "w", false, "print each change of the state, until Ctrl-C")
	cli.OutputFlag(c, &f.output, "table", "json", "yaml", "name")
	cli.AddressFlag(c, &f.address)
	f.Register(flags, e, "", ", for the generations of objects in files")
	f.Complete(c)
	return c
}

func (f *flags) run(c *cobra.Command, args []string) error {
	ctx, stop := signal.NotifyContext(c.Context(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	switch {
	case f.timeout <= 0:
		return fmt.Errorf("--timeout=%s: write a positive duration, such as 60s", f.timeout)
	case f.generation < 0:
		return fmt.Errorf("--generation=%d: write metadata.generation of the object, or 0", f.generation)
	case f.generation > 0 && (len(args) != 1 || len(f.files) > 0):
		return errors.New("--generation is about one object: name it by one argument KIND/NAME.NAMESPACE, without -f")
	case f.generation > 0 && f.deleted:
		return errors.New("--generation and --deleted are both given: a deletion has no generation")
	case f.newest && (f.generation > 0 || f.deleted || len(f.files) > 0):
		return errors.New("--current is about objects that arguments name, without --generation, --deleted and -f")
	case f.watch && c.Flags().Changed("timeout"):
		return errors.New("--watch and --timeout are both given: --watch goes on until Ctrl-C")
	case len(args)+len(f.files) == 0:
		return errors.New("no object: name it as KIND/NAME.NAMESPACE, or files by -f")
	}
	targets, err := f.targets(ctx, c, args)
	if err != nil {
		return err
	}
	w := &waiter{
		out: c.OutOrStdout(), warnings: c.ErrOrStderr(), output: f.output, watch: f.watch, newest: f.newest, targets: targets, servers: f,
	}
	if !f.watch {
		p := cli.NewProgress(c.ErrOrStderr(), "waiting for the proxies")
		defer p.Done()
		limited, cancel := context.WithTimeout(ctx, f.timeout)
		defer cancel()
		err = w.wait(limited)
	} else {
		err = w.wait(ctx)
	}
	if ctx.Err() != nil && f.watch {
		return nil
	}
	return err
}

// targets returns the objects that the arguments and the files name. An object that an argument and a file name is
// awaited in the version of the file.
func (f *flags) targets(ctx context.Context, c *cobra.Command, args []string) ([]*target, error) {
	var list []*target
	named := map[string]*target{}
	add := func(t *target) {
		if known := named[t.name]; known != nil {
			known.object = cmp.Or(t.object, known.object)
			return
		}
		named[t.name] = t
		list = append(list, t)
	}
	for _, text := range args {
		name, err := input.ObjectName(text)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", cli.Quoted(text), err)
		}
		add(&target{name: name, generation: f.generation, deleted: f.deleted})
	}
	if len(f.files) == 0 {
		return list, nil
	}
	objects, err := readFiles(ctx, c.InOrStdin(), f.files, f.namespace, c.ErrOrStderr())
	for _, o := range objects {
		t := &target{name: progress.Name(o.Key), deleted: f.deleted}
		if !f.deleted {
			t.object = o
		}
		add(t)
	}
	return list, err
}

// ask asks the server for the state of an object.
func (f *flags) ask(ctx context.Context, t *target) (a progress.Answer, err error) {
	query := url.Values{"object": {t.name}}
	if t.generation > 0 {
		query.Set("generation", strconv.FormatInt(t.generation, 10))
	}
	if t.uid != "" {
		query.Set("uid", t.uid)
	}
	if f.newest || t.newest {
		query.Set("generation", "current")
	}
	if t.version != "" {
		query.Set("version", t.version)
	}
	if t.deleted {
		query.Set("deleted", "true")
	}
	token := ""
	if f.tokenFile != "" { // a projected token is replaced now and then
		text, err := os.ReadFile(f.tokenFile)
		if err != nil {
			return a, fmt.Errorf("--token-file: %w", err)
		}
		if token = strings.TrimSpace(string(text)); token == "" || strings.ContainsFunc(token, notInToken) {
			return a, fmt.Errorf("--token-file: %s holds no token: it is empty, or has more than one line", cli.Quoted(f.tokenFile))
		}
	}
	err = cli.Page(ctx, token, f.address, "/debug/inforce?"+query.Encode(), f.output, &a)
	return a, err
}

// notInToken reports whether no token can have a character.
func notInToken(r rune) bool { return r <= ' ' || r > '~' }
