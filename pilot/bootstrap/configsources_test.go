package bootstrap

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/istiod-lite/istiod-lite/api/diag"
	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/deploy/must"
)

const sidecarText = `apiVersion: networking.istio.io/v1
kind: Sidecar
metadata: {name: NAME, namespace: a}
spec: {egress: [{hosts: ["./*"]}]}
`

// meshText is the mesh configuration as a ConfigMap.
func meshText(sources string) string {
	return "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: istio, namespace: istio-system}\n" +
		"data:\n  mesh: |\n    configSources: " + sources + "\n"
}

// has waits until the server's world has, or has not, a Sidecar of that name.
func has(t *testing.T, s *Server, name string, want bool) {
	t.Helper()
	eventually(t, "Sidecar "+name, func() bool {
		return (s.world.Object(kinds.Key{Kind: kinds.Sidecar, Namespace: "a", Name: name}) != nil) == want
	})
}

// serve runs a server over a directory with a mesh configuration and waits until it is ready.
func serve(t *testing.T, dir string) *Server {
	t.Helper()
	o := testOptions(t)
	o.ConfigDir = dir
	s := started(t, o)
	return s
}

// One control plane reads a directory that the mesh configuration names; another one reads from the first, over xDS.
func TestConfigSources(t *testing.T) {
	named, first, second := t.TempDir(), t.TempDir(), t.TempDir()
	put := func(dir, name, text string) { write(t, filepath.Join(dir, name), text) }
	sidecar := func(name string) string { return strings.ReplaceAll(sidecarText, "NAME", name) }
	put(named, "one.yaml", sidecar("one"))
	put(first, "mesh.yaml", meshText(`[{address: "fs://`+named+`"}]`))
	a := serve(t, first)
	has(t, a, "one", true)

	put(second, "mesh.yaml", meshText(`[{address: "xds://`+a.Addresses().GRPC+`"}]`))
	put(second, "own.yaml", sidecar("own"))
	b := serve(t, second)
	has(t, b, "one", true)
	has(t, b, "own", true)

	put(named, "two.yaml", sidecar("two"))
	has(t, b, "two", true)
	must.Succeed(t, os.Remove(filepath.Join(named, "one.yaml")))
	has(t, b, "one", false)

	// The list is read when the server starts; a change is a finding.
	put(second, "mesh.yaml", meshText(`[]`))
	eventually(t, "a changed list is told", func() bool {
		return slices.ContainsFunc(b.findings(), func(d diag.Diagnostic) bool { return d.Field == "configSources" })
	})
	has(t, b, "two", true)
}

// TestUnreachableConfigSource: the readiness probe says why a config source has not been read.
func TestUnreachableConfigSource(t *testing.T) {
	dir := t.TempDir()
	write(t, filepath.Join(dir, "mesh.yaml"), meshText(`[{address: "xds://127.0.0.1:1"}]`))
	o := testOptions(t)
	o.ConfigDir = dir
	s, err := New(o)
	must.Succeed(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	eventually(t, "the reason is told", func() bool {
		said := strings.Join(s.awaited(), ", ")
		return strings.Contains(said, "configuration of xds://127.0.0.1:1") && strings.Contains(said, "because the server cannot be read")
	})
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

func TestConfigSourcesRefused(t *testing.T) {
	for name, c := range map[string]struct{ sources, err string }{
		"no cluster":     {`[{address: "k8s://"}]`, "MeshConfig configSources[0]: k8s:// needs a cluster"},
		"unknown scheme": {`[{address: "fs://.."}, {address: "http://x"}]`, `configSources[1]: address "http://x" is none of`},
		"no directory":   {`[{address: "fs://"}]`, `address "fs://" is none of`},
		"no such folder": {`[{address: "fs:///nowhere/at/all"}]`, "/nowhere/at/all"},
		"twice": {`[{address: "xds://a:1"}, {address: "xds://a:1"}]`,
			"configSources[1]: address \"xds://a:1\" is that of configSources[0]"},
		"no port": {`[{address: "xds://host"}]`, "xds://host"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			write(t, filepath.Join(dir, "mesh.yaml"), meshText(c.sources))
			o := testOptions(t)
			o.ConfigDir = dir
			s, err := New(o)
			must.Succeed(t, err)
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			if err := s.Run(ctx); err == nil || !strings.Contains(err.Error(), c.err) {
				t.Errorf("got %v", err)
			}
		})
	}
}
