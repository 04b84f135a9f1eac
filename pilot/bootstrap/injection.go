package bootstrap

import (
	"github.com/istiod-lite/istiod-lite/api/diag"
	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/injector"
	"github.com/istiod-lite/istiod-lite/injector/templates"
	"github.com/istiod-lite/istiod-lite/pilot/components"
	"github.com/istiod-lite/istiod-lite/pilot/config/crd"
)

// Injection configures the injector.
type Injection struct {
	Off bool

	// See templates.Options.
	Dir            string
	Functions      injector.Functions
	NativeSidecars string
}

// injection is the injector and its inputs.
type injection struct {
	*templates.Templates
	source *crd.Source // nil without a cluster
}

// newInjection returns the injector. It has no templates yet.
func (s *Server) newInjection() (*injection, error) {
	o := s.o.Injection
	x := &injection{Templates: templates.New(templates.Options{
		Injector: injector.Options{
			Revision: s.o.Revision, World: s.world, Logger: s.o.Logger.With("scope", "injection"),
		},
		Functions: o.Functions, Namespace: s.o.Namespace, Dir: o.Dir, NativeSidecars: o.NativeSidecars, Cluster: s.o.Client != nil,
		Limit: s.o.Limits.MeshConfig, Poll: s.o.Poll, NoWatch: s.o.NoWatch,
		InForce: func() {
			if g := s.gateways; g != nil {
				g.gateways.NotifyAll()
			}
		},
	})}
	if s.o.Client == nil {
		return x, nil
	}
	var err error
	x.source, err = crd.New(crd.Options{
		Client: s.o.Client, Kinds: []*kinds.Kind{kinds.ConfigMap}, Handler: x.FromCluster, Logger: s.o.Logger.With("scope", "kube"),
		Metrics: s.metrics, Limits: s.o.Limits,
		Only: map[*kinds.Kind]crd.Restriction{kinds.ConfigMap: {Namespace: s.o.Namespace, Names: []string{injector.MapName(s.o.Revision)}}},
	})
	return x, err
}

// register registers the inputs of the injector in the order of starting.
func (x *injection) register(c *components.List) {
	c.Background("files with injection templates", x.Run)
	if x.source != nil {
		c.Background("injection templates", x.source.Run)
	}
	c.Start("injection templates", x.Wait)
}

// Findings returns the findings about the templates and their sources.
func (x *injection) Findings() []diag.Diagnostic {
	list := x.Templates.Findings()
	if x.source != nil {
		list = append(list, x.source.Findings()...)
	}
	return list
}

// templates returns the injection templates by name.
func (s *Server) templates() map[string]string {
	if s.injection == nil {
		return map[string]string{}
	}
	if c := s.injection.Injector.Config(); c != nil {
		return c.TemplateTexts()
	}
	return map[string]string{}
}
