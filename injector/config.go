package injector

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"text/template"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/yaml"

	"github.com/istiod-lite/istiod-lite/api/diag"
)

// Keys of the ConfigMap.
const (
	ConfigKey = "config"
	ValuesKey = "values"
)

// MapName returns the name of the ConfigMap of a revision of the control plane.
func MapName(revision string) string {
	if revision == "" || revision == "default" {
		return "istio-sidecar-injector"
	}
	return "istio-sidecar-injector-" + revision
}

// Config is one version of the ConfigMap. It is immutable.
type Config struct {
	enabled     bool // pods get a proxy unless they opt out
	defaults    []string
	aliases     map[string][]string
	templates   map[string]*template.Template
	never       []labels.Selector
	always      []labels.Selector
	annotations map[string]string
	values      map[string]any
	read        settings
	texts       Texts
}

// Texts are the two texts of the ConfigMap.
type Texts struct {
	Config string `json:"config"`
	Values string `json:"values"`
}

// Texts returns the texts that the Config was parsed from.
func (c *Config) Texts() Texts { return c.texts }

// Templates returns the names of the templates.
func (c *Config) Templates() []string { return slices.Sorted(maps.Keys(c.templates)) }

// TemplateTexts returns the source texts of the templates by name.
func (c *Config) TemplateTexts() map[string]string {
	var d document
	_ = yaml.Unmarshal([]byte(c.texts.Config), &d) // parsed before without an error
	if d.Templates == nil {
		d.Templates = map[string]string{defaultTemplate: d.Template}
	}
	return d.Templates
}

// document is the text with the key config.
type document struct {
	Policy               string                 `json:"policy"`
	DefaultTemplates     []string               `json:"defaultTemplates"`
	Template             string                 `json:"template"` // used by Istio releases with only one template
	Templates            map[string]string      `json:"templates"`
	Aliases              map[string][]string    `json:"aliases"`
	NeverInjectSelector  []metav1.LabelSelector `json:"neverInjectSelector"`
	AlwaysInjectSelector []metav1.LabelSelector `json:"alwaysInjectSelector"`
	InjectedAnnotations  map[string]string      `json:"injectedAnnotations"`
}

// settings are the values that the injector itself reads. Templates may read others.
type settings struct {
	Global struct {
		Hub          string `json:"hub"`
		Tag          any    `json:"tag"` // 1.31 may be decoded as a number
		Variant      string `json:"variant"`
		Network      string `json:"network"`
		MultiCluster struct {
			ClusterName string `json:"clusterName"`
		} `json:"multiCluster"`
		Proxy struct {
			Image                           string `json:"image"`
			HoldApplicationUntilProxyStarts bool   `json:"holdApplicationUntilProxyStarts"`
		} `json:"proxy"`
		ProxyInit struct {
			Image string `json:"image"`
		} `json:"proxy_init"`
	} `json:"global"`
	SidecarInjectorWebhook struct {
		RewriteAppHTTPProbe bool `json:"rewriteAppHTTPProbe"`
	} `json:"sidecarInjectorWebhook"`
}

// Parse compiles the texts of a ConfigMap. object names the ConfigMap in findings. The Config is nil if a finding is an
// Error.
func Parse(object string, t Texts, f Functions) (*Config, []diag.Diagnostic) {
	p := &parser{object: object}
	c := &Config{texts: t, aliases: map[string][]string{}, templates: map[string]*template.Template{},
		annotations: map[string]string{}, values: map[string]any{}}
	p.values(c, t.Values)
	p.config(c, t.Config, f)
	if p.failed {
		return nil, p.findings
	}
	return c, p.findings
}

// parser collects the faults of the texts.
type parser struct {
	object   string
	findings []diag.Diagnostic
	failed   bool
}

func (p *parser) add(severity diag.Severity, code, field, message, fix string) {
	p.failed = p.failed || severity == diag.Error
	p.findings = append(p.findings,
		diag.Diagnostic{Severity: severity, Code: code, Object: p.object, Field: field, Message: message, Fix: fix})
}

func (p *parser) values(c *Config, text string) {
	const field = "data." + ValuesKey
	if err := yaml.Unmarshal([]byte(text), &c.values); err != nil {
		p.add(diag.Error, "InvalidSyntax", field, err.Error(), "write the values of the chart as JSON or YAML")
		return
	}
	if err := yaml.Unmarshal([]byte(text), &c.read); err != nil {
		p.add(diag.Error, "InvalidType", field, err.Error(), "write the value with the type that it has in the chart")
	}
	if c.values == nil {
		c.values = map[string]any{}
	}
}

func (p *parser) config(c *Config, text string, f Functions) {
	const field = "data." + ConfigKey
	var d document
	if err := yaml.Unmarshal([]byte(text), &d); err != nil {
		p.add(diag.Error, "InvalidSyntax", field, err.Error(), "write policy, templates and defaultTemplates as YAML")
		return
	}
	p.unknown(field, text)
	switch d.Policy {
	case "enabled", "disabled":
		c.enabled = d.Policy == "enabled"
	default:
		p.add(diag.Error, "InvalidValue", field+": policy", fmt.Sprintf("%q is no policy", d.Policy), "write enabled or disabled")
	}
	if len(d.Templates) == 0 && d.Template != "" {
		d.Templates = map[string]string{defaultTemplate: d.Template}
	}
	for _, name := range slices.Sorted(maps.Keys(d.Templates)) {
		t, err := compile(name, d.Templates[name], f)
		if err != nil {
			p.template(field+": templates."+name, err)
			continue
		}
		c.templates[name] = t
	}
	c.aliases = d.Aliases
	c.defaults = d.DefaultTemplates
	if len(c.defaults) == 0 {
		c.defaults = []string{defaultTemplate}
	}
	for _, name := range c.defaults {
		if _, err := c.expand(name); err != nil && !p.failed {
			p.add(diag.Warning, "UnknownTemplate", field+": defaultTemplates", err.Error(), "add the template, or leave the name out")
		}
	}
	for _, alias := range slices.Sorted(maps.Keys(d.Aliases)) {
		for _, name := range d.Aliases[alias] {
			if d.Templates[name] == "" {
				p.add(diag.Warning, "UnknownTemplate", field+": aliases."+alias, fmt.Sprintf("there is no template %q", name),
					"name one of "+strings.Join(slices.Sorted(maps.Keys(d.Templates)), ", "))
			}
		}
	}
	c.never = p.selectors(field+": neverInjectSelector", d.NeverInjectSelector)
	c.always = p.selectors(field+": alwaysInjectSelector", d.AlwaysInjectSelector)
	c.annotations = d.InjectedAnnotations
}

// unknown reports unknown fields, which have no effect.
func (p *parser) unknown(field, text string) {
	var raw map[string]json.RawMessage
	if yaml.Unmarshal([]byte(text), &raw) != nil {
		return
	}
	known := []string{"policy", "defaultTemplates", "template", "templates",
		"aliases", "neverInjectSelector", "alwaysInjectSelector", "injectedAnnotations"}
	for _, name := range slices.Sorted(maps.Keys(raw)) {
		if !slices.Contains(known, name) {
			fix := "remove it"
			if near := diag.Nearest(name, known); near != "" {
				fix = "did you mean " + near + "?"
			}
			p.add(diag.Warning, "UnknownField", field+": "+name, "unknown field, ignored", fix)
		}
	}
}

// template reports a template that does not compile, with the line of the fault.
func (p *parser) template(field string, err error) {
	d := diag.Diagnostic{Severity: diag.Error, Code: "InvalidTemplate", Object: p.object, Field: field,
		Message: err.Error(), Fix: "correct the template; the last good version stays in force"}
	if parts := strings.SplitN(strings.TrimPrefix(err.Error(), "template: "), ":", 3); len(parts) == 3 {
		if line, e := strconv.Atoi(parts[1]); e == nil {
			d.Message = fmt.Sprintf("line %d of the template: %s", line, strings.TrimSpace(parts[2]))
		}
	}
	p.failed = true
	p.findings = append(p.findings, d)
}

func (p *parser) selectors(field string, list []metav1.LabelSelector) (out []labels.Selector) {
	for i := range list {
		s, err := metav1.LabelSelectorAsSelector(&list[i])
		if err != nil {
			p.add(diag.Warning, "InvalidSelector", fmt.Sprintf("%s[%d]", field, i), err.Error()+": the selector selects no pod",
				"correct the selector")
			continue
		}
		if !s.Empty() { // an empty selector would match every pod
			out = append(out, s)
		}
	}
	return out
}

// defaultTemplate is the template of pods if nothing else is set.
const defaultTemplate = "sidecar"

// expand returns the names of the templates behind a name, which may be an alias.
func (c *Config) expand(name string) ([]string, error) {
	names := []string{name}
	if a, ok := c.aliases[name]; ok {
		names = a
	}
	for _, n := range names {
		if c.templates[n] == nil {
			return nil, fmt.Errorf("there is no template %s: there are %s", quoted(n), strings.Join(c.Templates(), ", "))
		}
	}
	return names, nil
}

// maxTemplates bounds the templates of one pod.
const maxTemplates = 32

// selected returns the templates of a pod, in the order in which they are applied.
func (c *Config) selected(annotations map[string]string) ([]string, error) {
	names := c.defaults
	if list, ok := annotations[templatesAnnotation]; ok {
		names = strings.Split(list, ",")
	}
	var out []string
	for _, name := range names {
		expanded, err := c.expand(strings.TrimSpace(name))
		if err != nil {
			return nil, err
		}
		if out = append(out, expanded...); len(out) > maxTemplates {
			return nil, fmt.Errorf("annotation %s names more than %d templates", templatesAnnotation, maxTemplates)
		}
	}
	return out, nil
}

// fields splits a comma-separated list.
func fields(list string) (out []string) {
	for f := range strings.SplitSeq(list, ",") {
		if f = strings.TrimSpace(f); f != "" {
			out = append(out, f)
		}
	}
	return out
}
