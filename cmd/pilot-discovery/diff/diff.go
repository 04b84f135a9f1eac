package diff

import (
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

// Exit codes of diff, the same as kubectl diff's.
const (
	ExitDiffers = 1
	Broken      = 2 // the command failed
)

// flags are the flags of diff. They have the names of kubectl's flags.
type flags struct {
	analyze.Flags
	against string
	deleted []string // objects to delete, as KIND/NAME.NAMESPACE
	without []string // files with the objects to delete
	limit   int
	dryRun  bool
	watch   bool

	unreadable input.Unreadable
	texts      []*file.Texts // contents of the files of -f
}

// Command returns the command pilot-discovery diff.
func Command(e *env.Env) *cobra.Command {
	f := &flags{}
	c := &cobra.Command{
		Use:   "diff [DIR] -f CHANGE.yaml",
		Short: "Print the effect of a change on every proxy, before it is applied",
		Long: `Print the effect of a change before it is applied: which proxies are affected, which of their
resources are added, changed and removed, in which fields, which objects are the cause, how many
bytes would be pushed, and which findings are new or resolved.

What proxies are sent by the current configuration is compared with what they would be sent after
the change. The current configuration is the cluster that kubectl would use, which is only read, or
the directory DIR. The change is to apply the files of -f, and to delete the objects of --delete and
--delete-filename. With --against git:REVISION the directory of -f at that revision is compared with
the directory as it is now.

The proxies are those of Pods that have one. If no Pod has one, as in a directory of Pods before
injection, each Pod is taken to have one. Pods of gateways, which have one in files too, do not
change that.

An Envoy with ISTIO_DELTA_XDS=false, and an application that uses xDS without a proxy, are sent all
of their clusters or listeners if one of them changes. The bytes include them.

Fields that are not in the files stay unchanged: the addresses of Services, the status of Pods, the
age of objects.

With --server-side the API server also validates the change by a dry run, which writes nothing: by
its schemas, its webhooks, and your permissions.

-o wide leaves nothing out, and -o name prints the affected proxies.

The exit code is 0 if there is no difference, 1 if there is one, and 2 if the command fails or a
server would refuse the change.`,
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
	flags.StringArrayVarP(&f.Files, "filename", "f", nil,
		"file or directory with the objects to create or change, or - for the standard input; may be repeated")
	flags.StringArrayVar(&f.deleted, "delete", nil, "object to delete: KIND/NAME.NAMESPACE; may be repeated")
	flags.StringArrayVar(&f.without, "delete-filename", nil, "file or directory with the objects to delete; may be repeated")
	flags.StringVar(&f.against, "against", "", "current configuration: a directory, cluster, or git:REVISION of the directory of -f; "+
		"the cluster by default")
	cli.OutputFlag(c, &f.Output, cli.ListFormats()...)
	flags.BoolVar(&f.dryRun, "server-side", false, "also validate the change by a dry run on the API server: its schemas, its "+
		"webhooks and your permissions")
	cli.WatchFlag(c, &f.watch)
	flags.IntVar(&f.limit, "limit", 20, "maximum length of lists of fields, proxies and resources with -o table; 0 for all")
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
		return errors.New("no change: name files by -f, or objects to delete by --delete KIND/NAME.NAMESPACE or --delete-filename")
	}
	if len(args) > 0 && f.against != "" {
		return fmt.Errorf("%s and --against=%s both name the current configuration: name one of them", args[0], f.against)
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

// once prints the effect of the change once.
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
		return fmt.Errorf("a server would refuse the current configuration: %w", i.Refusal)
	}
	f.unreadable.Warn(c, i, w, f.watch, cli.Tabular(f.Output))
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
	show := map[string]func(io.Writer, *inspect.Changed, *gitTree) error{"table": f.text, "wide": f.wide, "json": f.document,
		"yaml": f.document, "name": f.names}[f.Output]
	if err := show(w, done, tree); err != nil {
		return err
	}
	if done.Empty() && len(done.New)+len(done.Mended) == 0 {
		return nil
	}
	return cli.Exit(ExitDiffers)
}

// base sets the options by which the current configuration is read.
func (f *flags) base(c *cobra.Command, o *ingest.Options, against string) (*gitTree, error) {
	f.ConfigDir = ""
	revision, isGit := strings.CutPrefix(against, "git:")
	switch {
	case against == "" || against == "cluster":
		f.UseKube, f.Elsewhere = true, "a directory by --against"
		return nil, f.ReadCluster(c, o, false)
	case isGit:
		if len(f.Files) != 1 || f.Files[0] == "-" {
			return nil, errors.New("--against=git:REVISION compares a directory or file with an earlier revision: name it by one -f")
		}
		tree, err := readGit(c.Context(), revision, f.Files[0])
		if err != nil {
			return nil, err
		}
		f.ConfigDir = tree.dir
		return tree, nil
	}
	if info, err := os.Stat(against); err != nil {
		return nil, fmt.Errorf("the current configuration %s: write a directory, cluster or git:REVISION: %w", against, err)
	} else if !info.IsDir() {
		return nil, fmt.Errorf("the current configuration %s is not a directory: name changed files by -f", against)
	}
	f.ConfigDir = against
	return nil, nil
}

// changes returns the changes to apply, and findings about the objects as they are written.
func (f *flags) changes(c *cobra.Command, i *inspect.Inspection, o ingest.Options, tree *gitTree) (list []kinds.Change,
	found []diag.Diagnostic, err error) {
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
			err = fmt.Errorf("%s: the files contain no object of a known kind", strings.Join(paths, ", "))
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
				return nil, nil, fmt.Errorf("%s: the object is both changed and deleted: name it once", x.Key)
			}
			if i.Object(x.Key) == nil {
				return nil, nil, fmt.Errorf("--delete-filename: there is no %s %s%s", x.Kind.Name, strings.TrimSuffix(x.Name+"."+x.Namespace, "."),
					diag.NearNames(x.Name+"."+x.Namespace, i.Names(x.Kind)))
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
			return nil, nil, fmt.Errorf("--delete=%s: the object is both changed and deleted: name it once", text)
		}
		remove(k)
	}
	return list, found, nil
}

// keyOf returns the object that KIND/NAME.NAMESPACE names. If several groups have the kind, it is the one that exists.
func keyOf(text string, i *inspect.Inspection) (kinds.Key, error) {
	list, err := kinds.Parse(text)
	_, name, _ := strings.Cut(text, "/")
	near := ""
	if len(list) > 0 {
		near = diag.NearNames(name, i.Names(list[0].Kind))
	}
	if err != nil {
		return kinds.Key{}, fmt.Errorf("--delete=%s: %w%s", cli.Quoted(text), err, near)
	}
	for _, k := range list {
		if i.Object(k) != nil {
			return k, nil
		}
	}
	return kinds.Key{}, fmt.Errorf("--delete=%s: there is no %s %s%s", text, list[0].Kind.Name, name, near)
}

// gitTree is a directory as it was at a revision of Git.
type gitTree struct {
	dir      string // temporary directory with the files of that revision
	revision string
	of       string // the original directory
	only     string // the only file of it that is compared; empty for all
}

func (t *gitTree) remove() { _ = os.RemoveAll(t.dir) }

// holds reports whether an object at a position takes part in the comparison.
func (t *gitTree) holds(position string) bool {
	path, _, _ := strings.Cut(position, ":")
	return t.only == "" || path == filepath.Join(t.dir, t.only)
}

// shown returns a text with the original names of files instead of temporary ones.
func (t *gitTree) shown(text string) string {
	if t == nil {
		return text
	}
	return strings.ReplaceAll(text, t.dir+string(filepath.Separator), "git:"+t.revision+":"+filepath.Clean(t.of)+string(filepath.Separator))
}

// readGit writes the files of a path at a revision to a temporary directory.
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
