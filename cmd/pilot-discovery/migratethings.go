package main

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
	"github.com/istiod-lite/istiod-lite/cmd/report"
	"github.com/istiod-lite/istiod-lite/cmd/version"
	"github.com/istiod-lite/istiod-lite/injector"
)

// discovery returns the container that runs a control plane in a Deployment.
func (t thing) discovery() (container map[string]any, ok bool) {
	if t.GetKind() != "Deployment" {
		return nil, false
	}
	for _, c := range t.list("spec", "template", "spec", "containers") {
		if c["name"] == "discovery" {
			return c, true
		}
	}
	return nil, false
}

func (t thing) revision() string { return cmp.Or(t.GetLabels()[names.LabelRevision], "default") }

// revisionsOf returns the revisions of istiod that run, in order.
func revisionsOf(around []thing) (list []string) {
	for _, t := range around {
		if _, ok := t.discovery(); ok && !version.Own(t.GetLabels()) {
			list = append(list, t.revision())
		}
	}
	slices.Sort(list)
	return slices.Compact(list)
}

// readThings reads what is around the control plane of a cluster. What this user may not read is left out, and said.
func (f *migrateFlags) readThings(ctx context.Context) ([]thing, error) {
	config, err := f.cluster.connection()
	if err != nil {
		return nil, err
	}
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	var list []thing
	for _, x := range []struct {
		schema.GroupVersionResource
		namespace, kind string
	}{
		{schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "deployments"}, f.worldFlags.namespace, "Deployment"},
		{schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "daemonsets"}, f.worldFlags.namespace, "DaemonSet"},
		{schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}, f.worldFlags.namespace, "ConfigMap"},
		{schema.GroupVersionResource{Version: "v1", Resource: "services"}, f.worldFlags.namespace, "Service"},
		{schema.GroupVersionResource{Version: "v1", Resource: "namespaces"}, "", "Namespace"},
		{schema.GroupVersionResource{Group: "admissionregistration.k8s.io", Version: "v1", Resource: "mutatingwebhookconfigurations"}, "", "MutatingWebhookConfiguration"},
		{schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}, "", "CustomResourceDefinition"},
	} {
		all, err := client.Resource(x.GroupVersionResource).Namespace(x.namespace).List(ctx, metav1.ListOptions{})
		if apierrors.IsForbidden(err) {
			u := &unstructured.Unstructured{Object: map[string]any{}}
			u.SetKind("Forbidden")
			u.SetName(x.Resource)
			list = append(list, thing{u})
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("read %s: %w", x.Resource, err)
		}
		for n := range all.Items {
			u := &all.Items[n]
			u.SetKind(x.kind)
			list = append(list, thing{u})
		}
	}
	secrets, err := f.remoteSecrets(ctx, config)
	return append(list, secrets...), err
}

// remoteSecrets returns those that name remote clusters, without what is in them.
func (f *migrateFlags) remoteSecrets(ctx context.Context, config *rest.Config) (list []thing, err error) {
	client, err := metadata.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	u := &unstructured.Unstructured{Object: map[string]any{}}
	all, err := client.Resource(schema.GroupVersionResource{Version: "v1", Resource: "secrets"}).Namespace(f.worldFlags.namespace).List(ctx, metav1.ListOptions{LabelSelector: "istio/multiCluster=true"})
	if apierrors.IsForbidden(err) {
		u.SetKind("Forbidden")
		u.SetName("secrets")
		return []thing{{u}}, nil
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
		list = append(list, thing{u})
	}
	return list, nil
}

// thing says what a move means for an object around the control plane.
func (f *migrateFlags) thing(v *verdict, t thing, istiods []string) {
	labels := t.GetLabels()
	switch t.GetKind() {
	case "Forbidden":
		// Of Secrets nothing but the names of remote clusters is asked for, which are read as istiod reads them.
		v.add("not looked at", point{InTheWay: t.GetName() != "secrets", Text: "this user may not list " + t.GetName(), Fix: "grant the verb list on them"})
	case "Deployment":
		if c, ok := t.discovery(); ok {
			f.istiod(v, t, c)
		}
	case "ConfigMap":
		if slices.ContainsFunc(istiods, func(revision string) bool { return t.GetName() == injector.MapName(revision) }) {
			f.templates(v, t)
		}
	case "DaemonSet":
		if t.GetName() == "ztunnel" || labels["app"] == "ztunnel" {
			v.add("ambient mesh", point{InTheWay: true, Text: t.named() + " is part of an ambient mesh, which is not served", Fix: "give these workloads sidecars first", Where: t.named()})
		}
	case "Namespace":
		if labels[names.LabelDataplane] == "ambient" {
			v.add("ambient mesh", point{InTheWay: true, Text: t.named() + " takes part in an ambient mesh, which is not served", Fix: "label it istio-injection=enabled in its place", Where: t.named()})
		}
		if r := cmp.Or(labels[names.LabelRevision], map[bool]string{true: "default"}[labels["istio-injection"] == "enabled"]); r != "" {
			v.add("revisions", point{Text: t.named() + " is injected by revision " + r})
		}
	case "Gateway":
		if strings.HasPrefix(t.GetAPIVersion(), "gateway.networking.k8s.io/") && strings.Contains(t.field("spec", "gatewayClassName"), "waypoint") {
			v.Same--
			v.add("ambient mesh", point{InTheWay: true, Text: t.named() + " is a waypoint of an ambient mesh, which is not served", Where: t.named()})
		}
	case "Pod":
		if _, ambient := t.GetAnnotations()[names.AnnotationAmbient]; ambient || labels[names.LabelDataplane] == "ambient" {
			v.add("ambient mesh", point{InTheWay: true, Text: t.named() + " takes part in an ambient mesh, which is not served", Where: t.named()})
		}
	case "MutatingWebhookConfiguration":
		if labels["app"] == "sidecar-injector" || labels[names.LabelTag] != "" {
			revision := cmp.Or(labels[names.LabelRevision], "default")
			text := t.named() + " injects for revision " + revision
			if tag := labels[names.LabelTag]; tag != "" {
				text = t.named() + " points tag " + tag + " to revision " + revision
			}
			v.add("webhooks", point{Text: text, Fix: "it stays as it is until the tag or the revision is moved"})
		}
	case "Secret":
		if labels["istio/multiCluster"] == "true" {
			v.add("remote clusters", point{Text: t.named() + " names remote clusters, which are read as istiod reads them"})
		}
	case "Service":
		f.service(v, t)
	case "CustomResourceDefinition":
		f.kind(v, t)
	}
}

// kind says of a kind of Istio's, or of the Gateway API's, that it is not read.
func (f *migrateFlags) kind(v *verdict, t thing) {
	group, name := t.field("spec", "group"), t.field("spec", "names", "kind")
	if ofIstio(group) && kindOf(group, name) == nil {
		v.add("kinds that are not read", point{Text: name + " of " + group + ": its objects, if there are any, have no effect here"})
	}
}

// ofIstio reports whether a control plane of Istio's reads kinds of a group.
func ofIstio(group string) bool {
	return strings.HasSuffix(group, "istio.io") && group != "install.istio.io" || group == "gateway.networking.k8s.io"
}

// istiod says what of its environment and its arguments has no effect here.
func (f *migrateFlags) istiod(v *verdict, t thing, c map[string]any) {
	image, _ := c["image"].(string)
	if version.Own(t.GetLabels()) {
		v.add("control planes", point{Text: fmt.Sprintf("%s is this control plane already, of revision %s, %s", t.named(), t.revision(), image)})
		return
	}
	p := point{Text: fmt.Sprintf("%s is the control plane of revision %s, %s", t.named(), t.revision(), image)}
	if of := minorOf(image); of != "" && of != minorOf(version.APILevel) {
		p.Fix = fmt.Sprintf("it is of Istio %s, and the verdict is about %s: read what changed between them, or upgrade it first", of, minorOf(version.APILevel))
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
			Fix: "compare them with the variables of this control plane: pilot-discovery discovery --help", Where: t.named()})
	}
	e := newEnv(environ)
	command := discoveryCommand(&e, args)
	for _, name := range e.foreign() {
		v.add("environment of istiod", point{InTheWay: true, Text: fmt.Sprintf("%s=%s has no effect here", name, e.getenv(name)), Fix: "leave it out, or see that nothing depends on it", Where: t.named()})
	}
	for _, w := range append(e.warnings, e.refused...) {
		v.add("environment of istiod", point{InTheWay: true, Text: w, Where: t.named()})
	}
	for _, name := range unknownFlags(command.Flags(), args) {
		v.add("arguments of istiod", point{InTheWay: true, Text: "--" + name + " has no effect here", Fix: "leave it out, or see that nothing depends on it", Where: t.named()})
	}
}

// minorVersion finds the first two numbers of a version, such as that of an image's tag.
var minorVersion = regexp.MustCompile(`(?:^|:)(\d+\.\d+)(?:\.|-|$)`)

// minorOf returns the first two numbers of the version of an image, or of a version; empty where there are none.
func minorOf(image string) string {
	image = image[strings.LastIndexByte(image, '/')+1:] // the registry's port is no version
	if m := minorVersion.FindStringSubmatch(image); m != nil {
		return m[1]
	}
	return ""
}

// chartTemplates are the templates of injection that Istio's chart makes.
var chartTemplates = []string{"sidecar", "gateway", "grpc-simple", "grpc-agent", "waypoint", "kube-gateway", "agentgateway", "agentgateway-waypoint"}

// templates says which templates of injection a user has added to those of Istio's chart.
func (f *migrateFlags) templates(v *verdict, t thing) {
	var config struct{ Templates map[string]string }
	if err := sigsyaml.Unmarshal([]byte(t.field("data", injector.ConfigKey)), &config); err != nil {
		v.add("wrong already", point{Text: t.named() + ": " + err.Error(), Where: t.named()})
		return
	}
	for _, name := range slices.Sorted(maps.Keys(config.Templates)) {
		if !slices.Contains(chartTemplates, name) {
			v.add("templates of injection", point{InTheWay: true, Text: fmt.Sprintf("template %s of %s is not the chart's", name, t.named()), Fix: "give it to this one's chart by sidecarInjectorWebhook.templates." + name, Where: t.named()})
		}
	}
}

// service says which ports of istiod's Service are not served.
func (f *migrateFlags) service(v *verdict, t thing) {
	if t.GetLabels()["app"] != "istiod" {
		return
	}
	served := []string{"15010", "15012", "443", "15014", "15017", "8080"}
	var ports []string
	for _, p := range t.list("spec", "ports") {
		port := fmt.Sprint(p["port"])
		ports = append(ports, port)
		if !slices.Contains(served, port) {
			v.add("ports", point{InTheWay: true, Text: "port " + port + " of " + t.named() + " is not served", Where: t.named()})
		}
	}
	v.add("ports", point{Text: t.named() + " has the ports " + strings.Join(ports, ", ")})
}

// write writes the verdict in a format.
func (v *verdict) write(w io.Writer, output string, color painter) error {
	switch output {
	case "json", "yaml":
		return printValue(w, v, output)
	case "name":
		return v.names(w)
	}
	return v.text(w, output == "wide", color)
}

// names writes what stands in the way, each object once.
func (v *verdict) names(w io.Writer) error {
	var list []string
	for _, s := range v.Sections {
		for _, p := range s.Points {
			if name := cmp.Or(p.Object, p.Where); p.InTheWay && name != "" {
				list = append(list, name)
			}
		}
	}
	return printSorted(w, list)
}

// fewPoints is how many points of a section that do not stand in the way are written, but for all of them with wide.
const fewPoints = 10

// text writes the verdict for a person.
func (v *verdict) text(w io.Writer, wide bool, color painter) error {
	var out bytes.Buffer
	if v.Same == v.Objects {
		fmt.Fprintf(&out, "All of %s do what they do under istiod.\n", report.Amount(v.Objects, "object"))
	} else {
		fmt.Fprintf(&out, "%d of %s do what they do under istiod; %d do not.\n", v.Same, report.Amount(v.Objects, "object"), v.Objects-v.Same)
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
				mark = color.paint(red, "!")
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
		fmt.Fprintf(&out, "\n%s docs/migrate.md has the way there and back.\n", color.paint(green, "Nothing stands in the way."))
	} else {
		fmt.Fprintf(&out, "\n%s in the way (!). docs/migrate.md has the way there and back.\n", color.paint(red, stands(v.InTheWay)))
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
