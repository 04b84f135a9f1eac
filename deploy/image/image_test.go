package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"io"
	"os"
	"path"
	"path/filepath"
	"strings"
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

// The digests lead from the index to the binary of each architecture, as a container runtime follows them.
func TestBuild(t *testing.T) {
	for _, architectures := range [][]string{{"amd64"}, {"amd64", "arm64"}} {
		t.Run(strings.Join(architectures, ","), func(t *testing.T) { testBuild(t, architectures) })
	}
}

func testBuild(t *testing.T, architectures []string) {
	var images []image
	for _, arch := range architectures {
		images = append(images, image{
			arch: arch, revision: "c0ffee", docs: []file{{"LICENSES", []byte("be kind")}},
			programs: []file{{"pilot-discovery", bytes.Repeat([]byte(arch), 1000)}, {"pilot-agent", []byte("agent")}},
		})
	}
	archive, err := build(images, "1.2.3")
	must.Succeed(t, err)
	again, err := build(images, "1.2.3")
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
	values, err := os.ReadFile("../../charts/istiod/values.yaml")
	must.Succeed(t, err)
	var chart struct{ Hub, Image string }
	must.Succeed(t, yaml.Unmarshal(values, &chart))
	if name, want := index.Manifests[0].Annotations["io.containerd.image.name"], chart.Hub+"/"+chart.Image+":1.2.3"; name != want {
		t.Errorf("the image is loaded as %q, and the chart pulls %q", name, want)
	}
	if len(architectures) > 1 { // the archive names one image, and its index has the architectures
		if len(index.Manifests) != 1 || index.Manifests[0].MediaType != indexType {
			t.Fatalf("the archive does not name one index: %v", index.Manifests)
		}
		read(blob(index.Manifests[0]), &index)
	}
	if len(index.Manifests) != len(architectures) {
		t.Fatalf("%d manifests for %v", len(index.Manifests), architectures)
	}
	for i, arch := range architectures {
		var manifest struct {
			Config descriptor
			Layers []descriptor
		}
		read(blob(index.Manifests[i]), &manifest)
		var config struct {
			Architecture string
			Config       struct {
				Entrypoint []string
				Labels     map[string]string
			}
			RootFS struct {
				DiffIDs []string `json:"diff_ids"`
			}
		}
		read(blob(manifest.Config), &config)
		if at := index.Manifests[i].Platform; at == nil || *at != (platform{arch, "linux"}) || config.Architecture != arch {
			t.Errorf("the image of %s is for %v and %s", arch, at, config.Architecture)
		}
		if at := config.Config.Labels["org.opencontainers.image.revision"]; at != "c0ffee" {
			t.Errorf("the image is made of the commit %q", at)
		}
		z, err := gzip.NewReader(bytes.NewReader(blob(manifest.Layers[0])))
		must.Succeed(t, err)
		layer, err := io.ReadAll(z)
		must.Succeed(t, err)
		if digest(layer) != config.RootFS.DiffIDs[0] {
			t.Error("the layer is not the one that the configuration names")
		}
		inside := files(t, bytes.NewReader(layer))
		for name, want := range map[string]string{
			config.Config.Entrypoint[0][1:]: string(images[i].programs[0].content), "usr/local/bin/pilot-agent": "agent",
			"usr/share/doc/istiod-lite/LICENSES": "be kind",
		} {
			if got := string(inside[name]); got != want {
				t.Errorf("%s has %d bytes, not %d", name, len(got), len(want))
			}
		}
	}
}

// The architecture of an image is the one in the header of its binaries.
func TestArchitecture(t *testing.T) {
	dir := t.TempDir()
	header := append([]byte("\x7fELF\x02\x01\x01"), make([]byte, 57)...)
	header[16], header[20], header[52] = 2, 1, 64 // an executable file, of version 1, with a header of 64 bytes
	for _, test := range []struct {
		name, arch string
		machine    byte
		fails      string
	}{
		{"amd64", "amd64", 62, ""},
		{"arm64", "arm64", 183, ""},
		{"mips", "", 8, "is for EM_MIPS: images are made for amd64 and arm64"},
	} {
		name := filepath.Join(dir, test.name)
		header[18] = test.machine
		must.Succeed(t, os.WriteFile(name, header, 0o755))
		arch, err := architecture(name)
		if arch != test.arch || (err != nil) != (test.fails != "") || err != nil && !strings.Contains(err.Error(), test.fails) {
			t.Errorf("%s: %q, %v", test.name, arch, err)
		}
	}
	script := filepath.Join(dir, "script")
	must.Succeed(t, os.WriteFile(script, []byte("#!/bin/sh\n"), 0o755))
	if err := run(filepath.Join(dir, "image.tar"), "1.2.3", "", "", []string{script}); err == nil {
		t.Error("a script became an image for Linux")
	}
}
