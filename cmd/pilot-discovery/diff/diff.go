package diff

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/istiod-lite/istiod-lite/api/diag"
	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/api/limits"
	"github.com/istiod-lite/istiod-lite/cmd/pilot-discovery/analyze"
	"github.com/istiod-lite/istiod-lite/cmd/pilot-discovery/cli"
	"github.com/istiod-lite/istiod-lite/cmd/pilot-discovery/env"
	"github.com/istiod-lite/istiod-lite/cmd/pilot-discovery/input"
	"github.com/istiod-lite/istiod-lite/pilot/config/file"
	"github.com/istiod-lite/istiod-lite/pilot/ingest"
	"github.com/istiod-lite/istiod-lite/pilot/inspect"
)

// Exit codes of diff, which are those of kubectl diff.
const (
	ExitDiffers = 1
	Broken      = 2 // it could not do its work
)

// flags are those of diff. Names are those of kubectl.
type flags struct {
	analyze.Flags
	against string
	deleted []string // KIND/NAME.NAMESPACE
	without []string // files of what is deleted
	limit   int
	dryRun  bool
	watch   bool
	texts   []*file.Texts // that were read for -f
}

func Command(e *env.Env) *cobra.Command {
	f := &flags{}
	c := &cobra.Command{
		Use:   "diff [DIR] -f CHANGE.yaml",
		Short: "Print what a change would do to every proxy, before it is applied",
		Long: `Print what a change would do, before it is applied: which proxies are affected, which of their resources are added, changed and removed and in which fields, which objects are why, how many bytes would be pushed, and which findings are new or mended.

The files of -f count over a directory, over the cluster of the kubeconfig, or over what a directory had at a revision of Git. The cluster is only read.

The proxies are those of Pods that have one. Where no Pod has one, as in a directory of Pods before injection, each counts; Pods of gateways, which have one in files, too, do not change that.

What files do not say stays as it is: the addresses of Services, the status of Pods, the age of objects.

With --server-side the API server judges the change, too, by a dry run, which writes nothing: by its schemas, its webhooks, and what you may write.

With -o wide nothing is left out, and -o name prints the proxies that are affected.

The exit code is 0 if nothing differs, 1 if something does, and 2 if the command could not do its work, or the change is one that a server would not take.`,
		Example: `  pilot-discovery diff -f route.yaml
  pilot-discovery diff mesh -f route.yaml -o json
  pilot-discovery diff mesh -f route.yaml --watch
  pilot-discovery diff mesh --delete VirtualService/reviews.shop
  pilot-discovery diff -f route.yaml --server-side -o name
  pilot-discovery diff -f mesh --against git:main`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(c *cobra.Command, args []string) error { return f.run(c, args) },
	}
	flags := c.Flags()
	f.RegisterMesh(flags, e, "istioNamespace", "i")
	flags.StringArrayVarP(&f.Files, "filename", "f", nil, "file or directory with what is created or changed, or - for the standard input; may be repeated")
	flags.StringArrayVar(&f.deleted, "delete", nil, "object that is deleted: KIND/NAME.NAMESPACE; may be repeated")
	flags.StringArrayVar(&f.without, "delete-filename", nil, "file or directory with objects that are deleted; may be repeated")
	flags.StringVar(&f.against, "against", "", "what there is now: a directory, cluster, or git:REVISION of the directory of -f; the cluster by default")
	cli.OutputFlag(c, &f.Output, cli.ListFormats()...)
	flags.BoolVar(&f.dryRun, "server-side", false, "have the API server judge the change, too, by a dry run: its schemas, its webhooks and what you may write")
	cli.WatchFlag(c, &f.watch)
	flags.IntVar(&f.limit, "limit", 20, "fields, proxies and resources of each list that -o table prints; 0: all")
	f.RegisterCluster(c, e)
	f.complete(c)
	return c
}

func (f *flags) run(c *cobra.Command, args []string) error {
	var err error
	if f.Color, err = cli.Painted(c, f.Env.Getenv); err != nil {
		return err
	}
	if f.limit < 0 {
		return fmt.Errorf("--limit=%d: write how many, or 0 for all", f.limit)
	}
	if len(f.Files)+len(f.deleted)+len(f.without) == 0 {
		return errors.New("no change: name files by -f, or what is deleted by --delete KIND/NAME.NAMESPACE or --delete-filename")
	}
	if len(args) > 0 && f.against != "" {
		return fmt.Errorf("%s and --against=%s: both say what there is now", args[0], f.against)
	}
	against := f.against
	if len(args) > 0 {
		against = args[0]
	}
	if f.watch && slices.Contains(slices.Concat(f.Files, f.without), "-") {
		return cli.ErrOneInput
	}
	return cli.Watched(c, f.watch, func(w io.Writer) error { return f.once(c, against, w) })
}

// once prints once what the change does.
func (f *flags) once(c *cobra.Command, against string, w io.Writer) error {
	f.texts = nil
	o := ingest.Options{Revision: f.Revision, Limits: limits.Default()}
	tree, err := f.base(c, &o, against)
	if err != nil {
		return err
	}
	if tree != nil {
		defer tree.remove()
	}
	i, err := input.Read(c, f.World, o)
	if err != nil {
		return f.TooLong(err)
	}
	if i.Snapshot == nil {
		return fmt.Errorf("what there is now is not what a server takes: %w", i.Refusal)
	}
	if !f.watch { // what is printed beside the output would be printed with each look
		input.WarnUnreadable(c, i)
	}
	changes, found, err := f.changes(c, i, o, tree)
	if err != nil {
		return err
	}
	errs := slices.DeleteFunc(slices.Clone(found), func(d diag.Diagnostic) bool { return d.Severity != diag.Error })
	if len(errs) > 0 {
		var said strings.Builder
		for _, d := range errs {
			fmt.Fprintf(&said, "%s\n", d)
		}
		const refused = "the change is not one that a server takes"
		if f.watch {
			return fmt.Errorf("%s:\n%s", refused, strings.TrimSuffix(said.String(), "\n"))
		}
		fmt.Fprint(c.ErrOrStderr(), said.String())
		return errors.New(refused)
	}
	if f.dryRun {
		if err := f.judged(c, changes); err != nil {
			return err
		}
	}
	p := cli.NewProgress(c.ErrOrStderr(), fmt.Sprintf("comparing what %d objects do to every proxy", len(changes)))
	done, err := i.Change(c.Context(), changes, found)
	p.Done()
	if err != nil {
		return err
	}
	show := map[string]func(io.Writer, *inspect.Changed, *gitTree) error{"table": f.text, "wide": f.wide, "json": f.document, "yaml": f.document, "name": f.names}[f.Output]
	if err := show(w, done, tree); err != nil {
		return err
	}
	if done.Empty() && len(done.New)+len(done.Mended) == 0 {
		return nil
	}
	return cli.Exit(ExitDiffers)
}

// base says where what there is now is read from.
func (f *flags) base(c *cobra.Command, o *ingest.Options, against string) (*gitTree, error) {
	f.ConfigDir = ""
	revision, isGit := strings.CutPrefix(against, "git:")
	switch {
	case against == "" || against == "cluster":
		f.UseKube, f.Elsewhere = true, "a directory by --against"
		return nil, f.ReadCluster(c, o, false)
	case isGit:
		if len(f.Files) != 1 || f.Files[0] == "-" {
			return nil, errors.New("--against=git:REVISION compares a directory, or a file of one, with what it was: name it by one -f")
		}
		tree, err := readGit(c.Context(), revision, f.Files[0])
		if err != nil {
			return nil, err
		}
		f.ConfigDir = tree.dir
		return tree, nil
	}
	if info, err := os.Stat(against); err != nil {
		return nil, fmt.Errorf("--against=%s: write a directory, cluster or git:REVISION: %w", against, err)
	} else if !info.IsDir() {
		return nil, fmt.Errorf("--against=%s: it is no directory; a change is named by -f", against)
	}
	f.ConfigDir = against
	return nil, nil
}

// changes returns what is to be done, and what is wrong with what is written of it.
func (f *flags) changes(c *cobra.Command, i *inspect.Inspection, o ingest.Options, tree *gitTree) (list []kinds.Change, found []diag.Diagnostic, err error) {
	read := func(paths []string) ([]*kinds.Object, error) {
		texts, err := file.Read(paths, c.InOrStdin(), o.Limits)
		if err != nil {
			return nil, err
		}
		texts.Namespace = f.Namespace
		f.texts = append(f.texts, texts)
		objects, wrong, err := inspect.Texts(c.Context(), o, texts)
		found = append(found, wrong...)
		if err == nil && len(objects)+len(wrong) == 0 && tree == nil {
			err = fmt.Errorf("%s: there is no object of a kind that is known", strings.Join(paths, ", "))
		}
		return objects, err
	}
	named := map[kinds.Key]bool{}
	if len(f.Files) > 0 {
		objects, err := read(f.Files)
		if err != nil {
			return nil, nil, err
		}
		for _, x := range objects {
			named[x.Key] = true
			list = append(list, kinds.Change{Key: x.Key, Object: x})
		}
	}
	remove := func(k kinds.Key) {
		if !named[k] {
			named[k] = true
			list = append(list, kinds.Change{Key: k})
		}
	}
	if tree != nil {
		for _, k := range input.SortedKeys(i.All()) {
			if tree.holds(i.Object(k).Position) {
				remove(k)
			}
		}
	}
	if len(f.without) > 0 {
		objects, err := read(f.without)
		if err != nil {
			return nil, nil, err
		}
		for _, x := range objects {
			if named[x.Key] {
				return nil, nil, fmt.Errorf("%s: it is changed and deleted at once", x.Key)
			}
			if i.Object(x.Key) == nil {
				return nil, nil, fmt.Errorf("--delete-filename: there is no %s%s", x.Key, diag.NearNames(x.Name+"."+x.Namespace, i.Names(x.Kind)))
			}
			remove(x.Key)
		}
	}
	for _, text := range f.deleted {
		k, err := keyOf(text, i)
		if err != nil {
			return nil, nil, err
		}
		if named[k] {
			return nil, nil, fmt.Errorf("--delete=%s: it is changed and deleted at once", text)
		}
		remove(k)
	}
	return list, found, nil
}

// shortNames are those that kubectl knows kinds by.
func shortNames() map[string]string {
	return map[string]string{
		"vs": "VirtualService", "dr": "DestinationRule", "gw": "Gateway", "se": "ServiceEntry", "we": "WorkloadEntry", "wg": "WorkloadGroup", "pc": "ProxyConfig",
		"ap": "AuthorizationPolicy", "pa": "PeerAuthentication", "ra": "RequestAuthentication", "telemetry": "Telemetry", "svc": "Service", "po": "Pod", "ns": "Namespace",
		"no": "Node", "cm": "ConfigMap", "sa": "ServiceAccount", "ing": "Ingress",
	}
}

// keyOf returns the object that KIND/NAME.NAMESPACE names.
func keyOf(text string, i *inspect.Inspection) (k kinds.Key, err error) {
	kind, name, ok := strings.Cut(text, "/")
	if !ok || name == "" {
		return k, fmt.Errorf("--delete=%s: write KIND/NAME.NAMESPACE, for example VirtualService/reviews.shop", cli.Quoted(text))
	}
	var known []string
	for _, x := range kinds.All() {
		known = append(known, x.Name)
		if name, group, _ := strings.Cut(kind, "."); (group == "" || group == x.Group) && (strings.EqualFold(name, x.Name) || strings.EqualFold(name, x.Plural) || shortNames()[strings.ToLower(name)] == x.Name) {
			k.Kind = cmp.Or(k.Kind, x)
		}
	}
	if k.Kind == nil {
		return k, fmt.Errorf("--delete=%s: there is no such kind%s", text, diag.NearNames(kind, known))
	}
	k.Name = name
	if !k.Kind.Cluster {
		if k.Name, k.Namespace, err = cli.SplitName(name); err != nil {
			return k, fmt.Errorf("--delete=%s: %w", text, err)
		}
	}
	if i.Object(k) == nil {
		return k, fmt.Errorf("--delete=%s: there is no such object%s", text, diag.NearNames(name, i.Names(k.Kind)))
	}
	return k, nil
}

// gitTree is a directory as it was at a revision of Git.
type gitTree struct {
	dir      string // a temporary one with its files
	revision string
	of       string // the directory
	only     string // the one file of it that is compared; empty: all
}

func (t *gitTree) remove() { _ = os.RemoveAll(t.dir) }

// holds reports whether an object that was read at a position is compared.
func (t *gitTree) holds(position string) bool {
	path, _, _ := strings.Cut(position, ":")
	return t.only == "" || path == filepath.Join(t.dir, t.only)
}

// shown returns a text with the names of files as the user knows them.
func (t *gitTree) shown(text string) string {
	if t == nil {
		return text
	}
	return strings.ReplaceAll(text, t.dir+string(filepath.Separator), "git:"+t.revision+":"+filepath.Clean(t.of)+string(filepath.Separator))
}

// readGit writes what a path was at a revision to a temporary directory.
func readGit(ctx context.Context, revision, path string) (*gitTree, error) {
	if revision == "" || strings.HasPrefix(revision, "-") {
		return nil, fmt.Errorf("--against=git:%s: write a revision, for example git:main", revision)
	}
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	t := &gitTree{revision: revision, of: path}
	if !info.IsDir() {
		t.of, t.only = filepath.Dir(path), filepath.Base(path)
	}
	if t.dir, err = os.MkdirTemp("", "diff"); err != nil {
		return nil, err
	}
	if err := t.extract(ctx); err != nil {
		t.remove()
		return nil, fmt.Errorf("--against=git:%s: %w", revision, err)
	}
	return t, nil
}
