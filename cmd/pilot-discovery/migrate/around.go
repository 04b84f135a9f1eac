package migrate

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"io"
	"maps"
	"regexp"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	sigsyaml "sigs.k8s.io/yaml"

	"github.com/istiod-lite/istiod-lite/api/names"
	"github.com/istiod-lite/istiod-lite/cmd/pilot-discovery/cli"
	"github.com/istiod-lite/istiod-lite/cmd/pilot-discovery/discovery"
	"github.com/istiod-lite/istiod-lite/cmd/pilot-discovery/env"
	"github.com/istiod-lite/istiod-lite/cmd/pilot-discovery/input"
	"github.com/istiod-lite/istiod-lite/cmd/report"
	"github.com/istiod-lite/istiod-lite/cmd/version"
	"github.com/istiod-lite/istiod-lite/injector"
)

// discoveryOf returns the container of a Deployment that runs a control plane.
func discoveryOf(t input.Thing) (container map[string]any, ok bool) {
	if t.GetKind() != "Deployment" {
		return nil, false
	}
	for _, c := range t.List("spec", "template", "spec", "containers") {
		if c["name"] == "discovery" {
			return c, true
		}
	}
	return nil, false
}

func revisionOf(t input.Thing) string { return cmp.Or(t.GetLabels()[names.LabelRevision], "default") }

// revisionsOf returns the revisions of running istiods, sorted.
func revisionsOf(around []input.Thing) (list []string) {
	for _, t := range around {
		if _, ok := discoveryOf(t); ok && !version.Own(t.GetLabels()) {
			list = append(list, revisionOf(t))
		}
	}
	slices.Sort(list)
	return slices.Compact(list)
}

// readThings reads the objects of a cluster that belong to the control plane. It reports objects that this user may not
// read and leaves them out.
func (f *flags) readThings(ctx context.Context) ([]input.Thing, error) {
	config, err := f.Cluster.Connection()
	if err != nil {
		return nil, err
	}
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	var list []input.Thing
	for _, x := range []struct {
		schema.GroupVersionResource
		namespace, kind string
	}{
		{schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "deployments"}, f.World.Namespace, "Deployment"},
		{schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "daemonsets"}, f.World.Namespace, "DaemonSet"},
		{schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}, f.World.Namespace, "ConfigMap"},
		{schema.GroupVersionResource{Version: "v1", Resource: "services"}, f.World.Namespace, "Service"},
		{schema.GroupVersionResource{Version: "v1", Resource: "namespaces"}, "", "Namespace"},
		{schema.GroupVersionResource{Group: "admissionregistration.k8s.io", Version: "v1", Resource: "mutatingwebhookconfigurations"}, "",
			"MutatingWebhookConfiguration"},
		{schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}, "",
			"CustomResourceDefinition"},
	} {
		all, err := client.Resource(x.GroupVersionResource).Namespace(x.namespace).List(ctx, metav1.ListOptions{})
		if apierrors.IsForbidden(err) {
			u := &unstructured.Unstructured{Object: map[string]any{}}
			u.SetKind("Forbidden")
			u.SetName(x.Resource)
			list = append(list, input.Thing{Unstructured: u})
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("read %s: %w", x.Resource, err)
		}
		for n := range all.Items {
			u := &all.Items[n]
			u.SetKind(x.kind)
			list = append(list, input.Thing{Unstructured: u})
		}
	}
	secrets, err := f.remoteSecrets(ctx, config)
	return append(list, secrets...), err
}

// remoteSecrets returns the Secrets that name remote clusters, without their content.
func (f *flags) remoteSecrets(ctx context.Context, config *rest.Config) (list []input.Thing, err error) {
	client, err := metadata.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	u := &unstructured.Unstructured{Object: map[string]any{}}
	all, err := client.Resource(schema.GroupVersionResource{Version: "v1", Resource: "secrets"}).Namespace(f.World.Namespace).List(ctx,
		metav1.ListOptions{LabelSelector: "istio/multiCluster=true"})
	if apierrors.IsForbidden(err) {
		u.SetKind("Forbidden")
		u.SetName("secrets")
		return []input.Thing{{Unstructured: u}}, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read the secrets of remote clusters: %w", err)
	}
	for n := range all.Items {
		u := &unstructured.Unstructured{Object: map[string]any{}}
		u.SetKind("Secret")
		u.SetNamespace(all.Items[n].Namespace)
		u.SetName(all.Items[n].Name)
		u.SetLabels(all.Items[n].Labels)
		list = append(list, input.Thing{Unstructured: u})
	}
	return list, nil
}

// thing adds points about an object beside the mesh configuration.
func (f *flags) thing(v *verdict, t input.Thing, istiods []string) {
	labels := t.GetLabels()
	switch t.GetKind() {
	case "Forbidden":
		// The user needs to list only the names of remote clusters' Secrets, which are read as istiod reads them.
		v.add("not looked at", point{InTheWay: t.GetName() != "secrets", Text: "this user may not list " + t.GetName(),
			Fix: "grant the verb list on them"})
	case "Deployment":
		if c, ok := discoveryOf(t); ok {
			f.istiod(v, t, c)
		}
	case "ConfigMap":
		if slices.ContainsFunc(istiods, func(revision string) bool { return t.GetName() == injector.MapName(revision) }) {
			f.templates(v, t)
		}
	case "DaemonSet":
		if t.GetName() == "ztunnel" || labels["app"] == "ztunnel" {
			v.add("ambient mesh", point{InTheWay: true, Text: t.Named() + " is part of an ambient mesh, which is not served",
				Fix: "give these workloads sidecars first", Where: t.Named()})
		}
	case "Namespace":
		if labels[names.LabelDataplane] == "ambient" {
			v.add("ambient mesh", point{InTheWay: true, Text: t.Named() + " takes part in an ambient mesh, which is not served",
				Fix: "label it istio-injection=enabled instead", Where: t.Named()})
		}
		if r := cmp.Or(labels[names.LabelRevision], map[bool]string{true: "default"}[labels["istio-injection"] == "enabled"]); r != "" {
			v.add("revisions", point{Text: t.Named() + " is injected by revision " + r})
		}
	case "Gateway":
		if strings.HasPrefix(t.GetAPIVersion(), "gateway.networking.k8s.io/") &&
			strings.Contains(t.Field("spec", "gatewayClassName"), "waypoint") {
			v.Same--
			v.add("ambient mesh", point{InTheWay: true, Text: t.Named() + " is a waypoint of an ambient mesh, which is not served",
				Where: t.Named()})
		}
	case "Pod":
		if _, ambient := t.GetAnnotations()[names.AnnotationAmbient]; ambient || labels[names.LabelDataplane] == "ambient" {
			v.add("ambient mesh", point{InTheWay: true, Text: t.Named() + " takes part in an ambient mesh, which is not served", Where: t.Named()})
		}
	case "MutatingWebhookConfiguration":
		if labels["app"] == "sidecar-injector" || labels[names.LabelTag] != "" {
			revision := cmp.Or(labels[names.LabelRevision], "default")
			text := t.Named() + " injects for revision " + revision
			if tag := labels[names.LabelTag]; tag != "" {
				text = t.Named() + " points tag " + tag + " to revision " + revision
			}
			v.add("webhooks", point{Text: text, Fix: "it stays unchanged until the tag or the revision is moved"})
		}
	case "Secret":
		if labels["istio/multiCluster"] == "true" {
			v.add("remote clusters", point{Text: t.Named() + " names remote clusters, which are read as istiod reads them"})
		}
	case "Service":
		f.service(v, t)
	case "CustomResourceDefinition":
		f.kind(v, t)
	}
}

// kind adds a point about a kind of Istio or of the Gateway API that is not read.
func (f *flags) kind(v *verdict, t input.Thing) {
	group, name := t.Field("spec", "group"), t.Field("spec", "names", "kind")
	if ofIstio(group) && input.Kind(group, name) == nil {
		v.add("kinds that are not read", point{Text: name + " of " + group + ": its objects, if there are any, have no effect here"})
	}
}

// ofIstio reports whether a control plane of Istio reads kinds of a group.
func ofIstio(group string) bool {
	return strings.HasSuffix(group, "istio.io") && group != "install.istio.io" || group == "gateway.networking.k8s.io"
}

// istiod adds points about environment variables and arguments of istiod that have no effect here.
func (f *flags) istiod(v *verdict, t input.Thing, c map[string]any) {
	image, _ := c["image"].(string)
	if version.Own(t.GetLabels()) {
		v.add("control planes", point{Text: fmt.Sprintf("%s is this control plane already, of revision %s, %s", t.Named(), revisionOf(t), image)})
		return
	}
	p := point{Text: fmt.Sprintf("%s is the control plane of revision %s, %s", t.Named(), revisionOf(t), image)}
	if of := minorOf(image); of != "" && of != minorOf(version.APILevel) {
		p.Fix = fmt.Sprintf("it is of Istio %s, but the verdict is about %s: read the change notes between them, or upgrade it first", of,
			minorOf(version.APILevel))
	}
	v.add("control planes", p)
	args, _, _ := unstructured.NestedStringSlice(c, "args")
	var environ []string
	list, _, _ := unstructured.NestedSlice(c, "env")
	for _, x := range list {
		if m, ok := x.(map[string]any); ok {
			value, _ := m["value"].(string)
			if m["valueFrom"] != nil {
				value = "(from elsewhere)"
			}
			environ = append(environ, fmt.Sprint(m["name"])+"="+value)
		}
	}
	if from, _, _ := unstructured.NestedSlice(c, "envFrom"); len(from) > 0 {
		v.add("environment of istiod", point{InTheWay: true, Text: "envFrom: the variables of ConfigMaps and Secrets are not read here",
			Fix: "compare them with the variables of this control plane: pilot-discovery discovery --help", Where: t.Named()})
	}
	e := env.New(environ)
	command := discovery.Command(&e, args)
	for _, name := range e.Foreign() {
		v.add("environment of istiod", point{InTheWay: true, Text: fmt.Sprintf("%s=%s has no effect here", name, e.Getenv(name)),
			Fix: "remove it, or check that nothing depends on it", Where: t.Named()})
	}
	for _, w := range append(e.Warnings, e.Refused...) {
		v.add("environment of istiod", point{InTheWay: true, Text: w, Where: t.Named()})
	}
	for _, name := range discovery.UnknownFlags(command.Flags(), args) {
		v.add("arguments of istiod", point{InTheWay: true, Text: "--" + name + " has no effect here",
			Fix: "remove it, or check that nothing depends on it", Where: t.Named()})
	}
}

// minorVersion matches the first two numbers of a version, also in the tag of an image.
var minorVersion = regexp.MustCompile(`(?:^|:)(\d+\.\d+)(?:\.|-|$)`)

// minorOf returns the first two numbers of the version of an image, or of a version. It returns "" if there are none.
func minorOf(image string) string {
	image = image[strings.LastIndexByte(image, '/')+1:] // skip the registry's port
	if m := minorVersion.FindStringSubmatch(image); m != nil {
		return m[1]
	}
	return ""
}

// chartTemplates are the injection templates in Istio's chart.
var chartTemplates = []string{"sidecar", "gateway", "grpc-simple", "grpc-agent", "waypoint", "kube-gateway", "agentgateway",
	"agentgateway-waypoint"}

// templates adds a point for each injection template that is not in Istio's chart.
func (f *flags) templates(v *verdict, t input.Thing) {
	var config struct{ Templates map[string]string }
	if err := sigsyaml.Unmarshal([]byte(t.Field("data", injector.ConfigKey)), &config); err != nil {
		v.add("wrong already", point{Text: t.Named() + ": " + err.Error(), Where: t.Named()})
		return
	}
	for _, name := range slices.Sorted(maps.Keys(config.Templates)) {
		if !slices.Contains(chartTemplates, name) {
			v.add("templates of injection", point{InTheWay: true, Text: fmt.Sprintf("template %s of %s is not the chart's", name, t.Named()),
				Fix: "add it to this control plane's chart by sidecarInjectorWebhook.templates." + name, Where: t.Named()})
		}
	}
}

// service adds a point for each port of istiod's Service that is not served.
func (f *flags) service(v *verdict, t input.Thing) {
	if t.GetLabels()["app"] != "istiod" {
		return
	}
	served := []string{"15010", "15012", "443", "15014", "15017", "8080"}
	var ports []string
	for _, p := range t.List("spec", "ports") {
		port := fmt.Sprint(p["port"])
		ports = append(ports, port)
		if !slices.Contains(served, port) {
			v.add("ports", point{InTheWay: true, Text: "port " + port + " of " + t.Named() + " is not served", Where: t.Named()})
		}
	}
	v.add("ports", point{Text: t.Named() + " has the ports " + strings.Join(ports, ", ")})
}

// write writes the verdict in a format.
func (v *verdict) write(w io.Writer, output string, color cli.Painter) error {
	switch output {
	case "json", "yaml":
		return cli.PrintValue(w, v, output)
	case "name":
		return v.names(w)
	}
	return v.text(w, output == "wide", color)
}

// names writes the objects with points that are in the way, each once.
func (v *verdict) names(w io.Writer) error {
	var list []string
	for _, s := range v.Sections {
		for _, p := range s.Points {
			if name := cmp.Or(p.Object, p.Where); p.InTheWay && name != "" {
				list = append(list, name)
			}
		}
	}
	return cli.PrintSorted(w, list)
}

// fewPoints limits how many points of a section are written that are not in the way. The format wide writes all of
// them.
const fewPoints = 10

// text writes the verdict for people.
func (v *verdict) text(w io.Writer, wide bool, color cli.Painter) error {
	var out bytes.Buffer
	if v.Same == v.Objects {
		fmt.Fprintf(&out, "All of %s have the same effect as under istiod.\n", report.Amount(v.Objects, "object"))
	} else {
		fmt.Fprintf(&out, "%d of %s have the same effect as under istiod; %d do not.\n", v.Same, report.Amount(v.Objects, "object"),
			v.Objects-v.Same)
	}
	for _, s := range v.Sections {
		fmt.Fprintf(&out, "\n%s\n", strings.ToUpper(s.Name[:1])+s.Name[1:])
		left, shown := 0, 0
		for _, p := range s.Points {
			if !p.InTheWay {
				if shown++; shown > fewPoints && !wide {
					left++
					continue
				}
			}
			mark := " "
			if p.InTheWay {
				mark = color.Paint(cli.Red, "!")
			}
			fmt.Fprintf(&out, "%s %s", mark, p.Text)
			if p.Fix != "" {
				fmt.Fprintf(&out, "; %s", p.Fix)
			}
			if p.Where != "" && !strings.Contains(p.Text, p.Where) {
				fmt.Fprintf(&out, " (%s)", p.Where)
			}
			fmt.Fprintln(&out)
		}
		if left > 0 {
			fmt.Fprintf(&out, "  and %d more (-o wide)\n", left)
		}
	}
	if v.InTheWay == 0 {
		fmt.Fprintf(&out, "\n%s docs/migrate.md describes the migration and the way back.\n",
			color.Paint(cli.Green, "Nothing stands in the way."))
	} else {
		fmt.Fprintf(&out, "\n%s in the way (!). docs/migrate.md describes the migration and the way back.\n",
			color.Paint(cli.Red, stands(v.InTheWay)))
	}
	_, err := w.Write(out.Bytes())
	return err
}

func stands(n int) string {
	if n == 1 {
		return "1 thing stands"
	}
	return fmt.Sprintf("%d things stand", n)
}
