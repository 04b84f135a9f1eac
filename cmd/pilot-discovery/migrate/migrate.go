package migrate

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/istiod-lite/istiod-lite/api/diag"
	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/api/limits"
	"github.com/istiod-lite/istiod-lite/api/names"
	"github.com/istiod-lite/istiod-lite/cmd/pilot-discovery/analyze"
	"github.com/istiod-lite/istiod-lite/cmd/pilot-discovery/cli"
	"github.com/istiod-lite/istiod-lite/cmd/pilot-discovery/env"
	"github.com/istiod-lite/istiod-lite/cmd/pilot-discovery/input"
	"github.com/istiod-lite/istiod-lite/cmd/report"
	"github.com/istiod-lite/istiod-lite/pilot/config/file"
	"github.com/istiod-lite/istiod-lite/pilot/ingest"
	"github.com/istiod-lite/istiod-lite/pilot/inspect"
	"github.com/istiod-lite/istiod-lite/registry/kube"
)

type flags struct {
	analyze.Flags
	e     *env.Env
	watch bool
}

// Command returns the command pilot-discovery migrate.
func Command(e *env.Env) *cobra.Command {
	f := &flags{e: e}
	c := &cobra.Command{
		Use:   "migrate",
		Short: "Print what a move from istiod to this control plane would change, and what prevents it",
		Long: `Print a verdict before a move from istiod: which objects have the same effect here as under istiod,
which do not and why; which parts of the mesh configuration and of istiod's own environment and
arguments have no effect here; and which webhooks, ports, proxies, remote clusters and parts of an
ambient mesh exist.

It reads the cluster that kubectl would use, or files with the objects of a cluster. It changes
nothing.

-o table shortens long lists of points that do not prevent the move, and -o wide prints them whole.
-o name prints the objects that prevent it.

docs/migrate.md describes the migration and the way back.

The exit code is 0 if nothing prevents the move, 79 if something does, and 1 if the command fails.`,
		Example: `  pilot-discovery migrate
  kubectl get deploy,ds,svc,pod,ns,mutatingwebhookconfiguration,istio-io,cm -A -o yaml | pilot-discovery migrate -f -`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error { return f.run(c) },
	}
	flags := c.Flags()
	f.RegisterMesh(flags, e, "istioNamespace", "i")
	flags.StringArrayVarP(&f.Files, "filename", "f", nil,
		"file or directory with the objects of a cluster, or - for the standard input, instead of the cluster; may be repeated")
	cli.OutputFlag(c, &f.Output, cli.ListFormats()...)
	cli.WatchFlag(c, &f.watch)
	f.RegisterCluster(c, e)
	return c
}

func (f *flags) run(c *cobra.Command) error {
	color, err := cli.Painted(c, f.Env.Getenv)
	if err != nil {
		return err
	}
	if f.watch && slices.Contains(f.Files, "-") {
		return cli.ErrOneInput
	}
	return cli.Watched(c, f.watch, func(w io.Writer) error { return f.once(c, color, w) })
}

// once prints the verdict once.
func (f *flags) once(c *cobra.Command, color cli.Painter, w io.Writer) (err error) {
	o := ingest.Options{Revision: f.Revision, Limits: limits.Default()}
	var around []input.Thing
	if len(f.Files) > 0 {
		if o.Texts, err = file.Read(f.Files, c.InOrStdin(), o.Limits); err != nil {
			return err
		}
		o.Texts.Namespace = f.Namespace
		around = input.Things(o.Texts)
	} else {
		f.UseKube, f.Elsewhere = true, "files by -f"
		if err := f.ReadCluster(c, &o, false); err != nil {
			return err
		}
		ctx, cancel := context.WithTimeout(c.Context(), f.Timeout)
		defer cancel()
		if around, err = f.readThings(ctx); err != nil {
			return f.TooLong(err)
		}
	}
	istiods := revisionsOf(around)
	if len(istiods) == 1 && f.Revision == "" {
		o.Revision = istiods[0] // the revision whose configuration is in force now
	}
	i, err := input.Read(c, f.World, o)
	if err != nil {
		return f.TooLong(err)
	}
	v := f.judge(i, around, istiods)
	if err := v.write(w, f.Output, color); err != nil {
		return err
	}
	if v.InTheWay > 0 {
		return cli.Exit(cli.Found)
	}
	return nil
}

// verdict is the effect of a move from istiod.
type verdict struct {
	Objects  int       `json:"objects"`      // number of objects of Istio's kinds and the Gateway API's
	Same     int       `json:"objectsAlike"` // number of objects with the same effect as under istiod
	InTheWay int       `json:"inTheWay"`     // number of points that are in the way
	Sections []section `json:"sections"`
}

// section holds the points about one subject.
type section struct {
	Name   string  `json:"name"`
	Points []point `json:"points"`
}

// point is one statement about an object.
type point struct {
	InTheWay bool   `json:"inTheWay,omitempty"`
	Text     string `json:"text"`
	Fix      string `json:"fix,omitempty"`
	Where    string `json:"where,omitempty"`
	Object   string `json:"object,omitempty"` // Kind namespace/name
}

func (v *verdict) add(name string, points ...point) {
	if len(points) == 0 {
		return
	}
	for _, p := range points {
		if p.InTheWay {
			v.InTheWay++
		}
	}
	at := slices.IndexFunc(v.Sections, func(s section) bool { return s.Name == name })
	if at < 0 {
		v.Sections = append(v.Sections, section{Name: name})
		at = len(v.Sections) - 1
	}
	v.Sections[at].Points = append(v.Sections[at].Points, points...)
}

// judge returns the effect of a move from istiods of a list of revisions.
func (f *flags) judge(i *inspect.Inspection, around []input.Thing, istiods []string) *verdict {
	v := &verdict{}
	for _, d := range input.Unreadable(i) { // objects that were not read cannot be judged
		v.add("not looked at", point{InTheWay: true, Text: d.Message, Fix: d.Fix})
	}
	f.objects(v, i, istiods)
	if len(istiods) > 1 {
		v.add("control planes", point{Text: "several revisions of istiod run: " + strings.Join(istiods, ", "),
			Fix: "the verdict is for --revision: run the command once for each"})
	}
	if i.Refusal != nil {
		v.add("objects", point{InTheWay: true, Text: "the server would not start: " + i.Refusal.Error()})
	}
	f.proxies(v, i)
	unread := map[string]int{}
	for _, t := range around {
		f.thing(v, t, istiods)
		if g := t.GroupVersionKind(); ofIstio(g.Group) && input.Kind(g.Group, g.Kind) == nil {
			unread[g.Kind+" of "+g.Group]++
		}
	}
	for _, kind := range slices.Sorted(maps.Keys(unread)) {
		v.add("kinds that are not read", point{Text: fmt.Sprintf("%s: %s, without an effect here", kind, report.Amount(unread[kind], "object"))})
	}
	return v
}

// differs reports whether a finding is about a field that has an effect under istiod and none here.
func differs(d diag.Diagnostic) bool {
	return slices.Contains([]string{"NotImplemented", "NotServed", "UnsupportedField", "Unusable", "Limit", "Refused", "PatchUnknown"},
		d.Code) || d.Code == "IST0118" && d.Severity == diag.Error
}

// configured reports whether a kind configures a mesh.
func configured(k *kinds.Kind) bool {
	return strings.HasSuffix(k.Group, "istio.io") || k.Group == "gateway.networking.k8s.io"
}

// objects counts the objects that have the same effect under istiods of a list of revisions, and adds points about the
// others.
func (f *flags) objects(v *verdict, i *inspect.Inspection, istiods []string) {
	all, other := map[string]bool{}, map[string]bool{}
	for _, o := range i.All() {
		if !configured(o.Kind) {
			continue
		}
		name := o.String()
		all[name] = true
		if rev := o.Labels[names.LabelRevision]; o.Kind.Istio && slices.Contains(istiods, rev) && rev != cmp.Or(f.Revision, "default") {
			other[name] = true
			v.add("objects", point{InTheWay: true, Object: name,
				Text: fmt.Sprintf("%s: the label %s=%s hides it from control planes of other revisions", name, names.LabelRevision, rev),
				Fix:  "remove the label, or install this control plane with that revision once istiod is removed"})
		}
	}
	for _, d := range i.Findings {
		p := point{InTheWay: differs(d), Text: findingText(d), Fix: d.Fix, Where: position(d), Object: d.Object}
		switch ofMesh := d.Object == "MeshConfig" || d.Object == "MeshNetworks"; {
		case ofMesh && d.Code == "Unusable":
			p.InTheWay = false // istiod does not use the object either, and other findings say why
			v.add("wrong already", p)
		case p.InTheWay && (ofMesh || d.Object == ""):
			v.add("mesh configuration", p)
		case p.InTheWay:
			other[d.Object] = all[d.Object]
			v.add("objects", p)
		case d.Severity == diag.Error && (ofMesh || all[d.Object]): // istiod does not repair the object either
			v.add("wrong already", p)
		case d.Severity == diag.Error && d.File != "":
			p.InTheWay = true
			v.add("not looked at", p)
		}
	}
	v.Objects = len(all)
	for name := range all {
		if !other[name] {
			v.Same++
		}
	}
}

// findingText returns the subject and the message of a finding.
func findingText(d diag.Diagnostic) string {
	text := d.Message
	for _, about := range []string{d.Field, d.Object} {
		if about != "" {
			text = about + ": " + text
		}
	}
	return text
}

func position(d diag.Diagnostic) string {
	if d.File == "" {
		return ""
	}
	if d.Line == 0 {
		return d.File
	}
	return fmt.Sprintf("%s:%d:%d", d.File, d.Line, d.Column)
}

// proxies adds points about the images of the proxies.
func (f *flags) proxies(v *verdict, i *inspect.Inspection) {
	images := map[string]int{}
	for _, o := range i.All() {
		if o.Kind == kinds.Pod {
			if image := kube.FactsOfPod(o).ProxyImage; image != "" {
				images[image]++
			}
		}
	}
	for _, image := range slices.Sorted(maps.Keys(images)) {
		p := point{Text: fmt.Sprintf("%d of %s: %s", images[image], image, kindOfImage(image))}
		v.add("proxies", p)
	}
	if len(images) == 0 {
		v.add("proxies", point{Text: "no Pod has a proxy"})
	}
}

// kindOfImage describes a proxy by its image.
func kindOfImage(image string) string {
	name := image[strings.LastIndexByte(image, '/')+1:]
	switch base, _, _ := strings.Cut(name, ":"); {
	case strings.HasPrefix(base, "proxyv2"):
		return "Istio's proxy, which is supported; it stays until its Pod is replaced"
	case strings.HasPrefix(base, "envoy"):
		return "a stock Envoy without Istio's filters: its metrics and its metadata of peers are Envoy's own"
	}
	return "an unknown image: its capabilities are the extensions that it reports"
}
