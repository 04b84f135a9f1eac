package manifest

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/istiod-lite/istiod-lite/injector"
)

// Options are the injector and the defaults of objects that do not name their namespace.
type Options struct {
	Injector  *injector.Injector
	File      string // name of the file, for errors
	Namespace string
}

// Inject returns a file with proxies. The notes say which Pods stay unchanged and why, and which settings of other Pods
// have no effect. The error joins all faults, with the file and the line of each document.
func Inject(ctx context.Context, o Options, text []byte) (out []byte, notes []string, err error) {
	var all bytes.Buffer
	var wrong []error
	for _, d := range split(text) {
		f := &file{Options: o, ctx: ctx, line: d.line}
		changed, err := f.document(d.text)
		if err != nil {
			wrong = append(wrong, err)
			continue
		}
		notes = append(notes, f.notes...)
		all.Write(d.separator)
		if changed == nil {
			changed = d.text
		}
		all.Write(changed)
	}
	if len(wrong) > 0 {
		return nil, notes, errors.Join(wrong...)
	}
	return all.Bytes(), notes, nil
}

// part is a document with the separator line before it.
type part struct {
	separator, text []byte
	line            int // line number of the text's first line, from 1
}

func split(text []byte) []part {
	parts := []part{{line: 1}}
	line := 0
	for l := range bytes.Lines(text) {
		line++
		rest, dashes := bytes.CutPrefix(l, []byte("---"))
		if dashes && len(bytes.TrimLeft(rest[:min(1, len(rest))], " \t\r\n")) == 0 {
			parts = append(parts, part{separator: l, line: line + 1})
			continue
		}
		p := &parts[len(parts)-1]
		p.text = append(p.text, l...)
	}
	return parts
}

// file injects one document.
type file struct {
	Options
	ctx   context.Context
	line  int
	notes []string
}

func (f *file) at(err error) error { return fmt.Errorf("%s:%d: %w", f.File, f.line, err) }

// document returns a document with proxies, or nil if it stays unchanged.
func (f *file) document(text []byte) ([]byte, error) {
	raw, err := yaml.YAMLToJSON(text)
	if err != nil {
		return nil, f.at(err)
	}
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	var object map[string]any
	if err := d.Decode(&object); err != nil {
		return nil, nil //nolint:nilerr // not an object but text, a list or nothing
	}
	changed, err := f.object(object)
	if err != nil {
		return nil, f.at(err)
	}
	if !changed {
		return nil, nil
	}
	return yaml.Marshal(object)
}

// object injects into an object, and reports whether the object changed.
func (f *file) object(o map[string]any) (changed bool, err error) {
	kind, _ := o["kind"].(string)
	if items, ok := o["items"].([]any); ok && strings.HasSuffix(kind, "List") {
		var wrong []error
		for _, item := range items {
			if item, ok := item.(map[string]any); ok {
				c, err := f.object(item)
				changed = changed || c
				wrong = append(wrong, err)
			}
		}
		return changed, errors.Join(wrong...)
	}
	template := o
	for _, field := range templateOf(kind) {
		template, _ = template[field].(map[string]any)
	}
	if template == nil || kind != "Pod" && templateOf(kind) == nil {
		return false, nil
	}
	meta, _ := o["metadata"].(map[string]any)
	name, _ := meta["name"].(string)
	namespace, _ := meta["namespace"].(string)
	namespace = cmp.Or(namespace, f.Namespace)
	version, _ := o["apiVersion"].(string)
	r := injector.Request{Namespace: namespace}
	if kind != "Pod" {
		r.Workload = &injector.Workload{TypeMeta: metav1.TypeMeta{Kind: kind, APIVersion: version}, Name: name}
	}
	called := fmt.Sprintf("%s %s/%s", kind, namespace, name)
	if changed, err = f.template(template, r, called); err != nil {
		err = fmt.Errorf("%s: %w", called, err)
	}
	return changed, err
}

// templateOf returns the path to the Pod template of a kind, or nil if it has none.
func templateOf(kind string) []string {
	switch kind {
	case "Deployment", "StatefulSet", "DaemonSet", "ReplicaSet", "ReplicationController", "Job", "DeploymentConfig", "Rollout":
		return []string{"spec", "template"}
	case "CronJob":
		return []string{"spec", "jobTemplate", "spec", "template"}
	}
	return nil
}

// template injects into a Pod, or into a Pod template.
func (f *file) template(t map[string]any, r injector.Request, called string) (bool, error) {
	var err error
	if r.Pod, err = json.Marshal(t); err != nil {
		return false, err
	}
	out, err := f.Injector.Inject(f.ctx, r)
	if err != nil {
		return false, err
	}
	for _, w := range out.Warnings {
		f.notes = append(f.notes, called+": "+w)
	}
	if out.Skipped != "" {
		f.notes = append(f.notes, called+" stays as it is: "+out.Skipped)
		return false, nil
	}
	t["metadata"], t["spec"] = out.Pod["metadata"], out.Pod["spec"]
	return true, nil
}
