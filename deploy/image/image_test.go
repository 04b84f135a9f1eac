package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"io"
	"os"
	"path"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/istiod-lite/istiod-lite/deploy/must"
)

func files(t *testing.T, archive io.Reader) map[string][]byte {
	t.Helper()
	out := map[string][]byte{}
	for r := tar.NewReader(archive); ; {
		h, err := r.Next()
		if err == io.EOF {
			return out
		}
		must.Succeed(t, err)
		content, err := io.ReadAll(r)
		must.Succeed(t, err)
		out[path.Clean(h.Name)] = content
	}
}

// The digests lead from the index to the binary, as a container runtime follows them.
func TestBuild(t *testing.T) {
	binary := bytes.Repeat([]byte("binary"), 1000)
	programs := []program{{"pilot-discovery", binary}, {"pilot-agent", []byte("agent")}}
	archive, err := build(programs, "1.2.3")
	must.Succeed(t, err)
	again, err := build(programs, "1.2.3")
	if err != nil || !bytes.Equal(archive, again) {
		t.Fatalf("not the same bytes twice (%v)", err)
	}
	all := files(t, bytes.NewReader(archive))
	blob := func(d descriptor) []byte {
		content := all["blobs/sha256/"+d.Digest[len("sha256:"):]]
		if digest(content) != d.Digest || len(content) != d.Size {
			t.Fatalf("blob %s is not what its descriptor says", d.Digest)
		}
		return content
	}
	read := func(content []byte, into any) {
		must.Succeed(t, json.Unmarshal(content, into))
	}
	var index struct{ Manifests []descriptor }
	read(all["index.json"], &index)
	var manifest struct {
		Config descriptor
		Layers []descriptor
	}
	read(blob(index.Manifests[0]), &manifest)
	values, err := os.ReadFile("../../charts/istiod/values.yaml")
	must.Succeed(t, err)
	var chart struct{ Hub, Image string }
	must.Succeed(t, yaml.Unmarshal(values, &chart))
	if name, want := index.Manifests[0].Annotations["io.containerd.image.name"], chart.Hub+"/"+chart.Image+":1.2.3"; name != want {
		t.Errorf("the image is loaded as %q, and the chart pulls %q", name, want)
	}
	var config struct {
		Config struct{ Entrypoint []string }
		RootFS struct {
			DiffIDs []string `json:"diff_ids"`
		}
	}
	read(blob(manifest.Config), &config)
	z, err := gzip.NewReader(bytes.NewReader(blob(manifest.Layers[0])))
	must.Succeed(t, err)
	layer, err := io.ReadAll(z)
	must.Succeed(t, err)
	if digest(layer) != config.RootFS.DiffIDs[0] {
		t.Error("the layer is not the one that the configuration names")
	}
	inside := files(t, bytes.NewReader(layer))
	if got := inside[config.Config.Entrypoint[0][1:]]; !bytes.Equal(got, binary) {
		t.Errorf("the entrypoint is not the binary: %d bytes", len(got))
	}
	if got := inside["usr/local/bin/pilot-agent"]; string(got) != "agent" {
		t.Errorf("the agent has %d bytes", len(got))
	}
}
