package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"debug/elf"
	"encoding/hex"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path"
	"slices"
	"strings"
	"time"
)

func main() {
	out := flag.String("o", "image.tar", "archive to write")
	version := flag.String("version", "unknown", "tag of the image")
	revision := flag.String("revision", "", "commit of the sources, a label of the image")
	doc := flag.String("doc", "", "file with licences, which the image gets in "+docs)
	flag.Parse()
	if flag.NArg() == 0 {
		fmt.Fprintln(os.Stderr, "usage: image [-o FILE] [-version TAG] [-revision COMMIT] [-doc FILE] BINARY...")
		os.Exit(2)
	}
	if err := run(*out, *version, *revision, *doc, flag.Args()); err != nil {
		fmt.Fprintln(os.Stderr, "image:", err)
		os.Exit(1)
	}
}

// run writes the archive out of an image for each architecture of the binaries.
func run(out, version, revision, doc string, binaries []string) error {
	var images []image
	for _, name := range binaries {
		arch, err := architecture(name)
		if err != nil {
			return err
		}
		content, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		i := slices.IndexFunc(images, func(m image) bool { return m.arch == arch })
		if i < 0 {
			i, images = len(images), append(images, image{arch: arch, revision: revision})
		}
		images[i].programs = append(images[i].programs, file{path.Base(name), content})
	}
	if doc != "" {
		content, err := os.ReadFile(doc)
		if err != nil {
			return err
		}
		for i := range images {
			images[i].docs = []file{{path.Base(doc), content}}
		}
	}
	archive, err := build(images, version)
	if err != nil {
		return err
	}
	return os.WriteFile(out, archive, 0o644)
}

// architecture returns the architecture of a binary by Go's name.
func architecture(name string) (string, error) {
	binary, err := elf.Open(name)
	if err != nil {
		return "", fmt.Errorf("read %s as a program for Linux: %w", name, err)
	}
	defer binary.Close()
	switch binary.Machine {
	case elf.EM_X86_64:
		return "amd64", nil
	case elf.EM_AARCH64:
		return "arm64", nil
	}
	return "", fmt.Errorf("%s is for %s: images are made for amd64 and arm64", name, binary.Machine)
}

// user is the user ID of Istio's own images.
const (
	user   = 1337
	folder = "usr/local/bin"
	docs   = "usr/share/doc/istiod-lite"
)

// repository is the repository that the chart pulls from. Nodes and docker that load the archive have the image under
// its name.
const repository = "ghcr.io/istiod-lite/istiod-lite"

// source is where the sources of the image are.
const source = "https://github.com/istiod-lite/istiod-lite"

const (
	manifestType = "application/vnd.oci.image.manifest.v1+json"
	indexType    = "application/vnd.oci.image.index.v1+json"
)

type descriptor struct {
	MediaType   string            `json:"mediaType"`
	Digest      string            `json:"digest"`
	Size        int               `json:"size"`
	Platform    *platform         `json:"platform,omitempty"`
	Annotations map[string]string `json:"annotations,omitempty"`
}

type platform struct {
	Architecture string `json:"architecture"`
	OS           string `json:"os"`
}

// file is the content of a file and its name in the image.
type file struct {
	name    string
	content []byte
}

// image is the image for one architecture. It runs the first program.
type image struct {
	arch, revision string
	programs, docs []file
}

// blobs holds the content of an archive in the order in which it is written.
type blobs struct {
	content map[string][]byte
	order   []string
}

// add returns the descriptor of a blob.
func (b *blobs) add(mediaType string, content []byte) descriptor {
	d := descriptor{MediaType: mediaType, Digest: digest(content), Size: len(content)}
	name := "blobs/sha256/" + strings.TrimPrefix(d.Digest, "sha256:")
	if _, ok := b.content[name]; !ok {
		b.content[name] = content
		b.order = append(b.order, name)
	}
	return d
}

// build returns the archive of the images. It names one manifest or, with several architectures, one index of them.
func build(images []image, version string) ([]byte, error) {
	b := &blobs{content: map[string][]byte{}}
	var manifests []descriptor
	for _, m := range images {
		d, err := m.manifest(b, version)
		if err != nil {
			return nil, err
		}
		manifests = append(manifests, d)
	}
	named := manifests[0]
	if len(images) > 1 {
		index, err := indexOf(manifests)
		if err != nil {
			return nil, err
		}
		named = b.add(indexType, index)
	}
	named.Annotations = map[string]string{"org.opencontainers.image.ref.name": version, "io.containerd.image.name": repository + ":" + version}
	index, err := indexOf([]descriptor{named})
	if err != nil {
		return nil, err
	}
	var archive bytes.Buffer
	w := tar.NewWriter(&archive)
	b.content["oci-layout"], b.content["index.json"] = []byte(`{"imageLayoutVersion":"1.0.0"}`), index
	for _, name := range append([]string{"oci-layout", "index.json"}, b.order...) {
		if err := addFile(w, name, b.content[name], 0o644); err != nil {
			return nil, err
		}
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	return archive.Bytes(), nil
}

func indexOf(manifests []descriptor) ([]byte, error) {
	return json.Marshal(map[string]any{"schemaVersion": 2, "mediaType": indexType, "manifests": manifests})
}

// manifest adds the blobs of an image, and returns the descriptor of its manifest.
func (m image) manifest(b *blobs, version string) (descriptor, error) {
	layer, err := m.layer()
	if err != nil {
		return descriptor{}, err
	}
	packed, err := compress(layer)
	if err != nil {
		return descriptor{}, err
	}
	labels := map[string]string{
		"org.opencontainers.image.version": version, "org.opencontainers.image.licenses": "Apache-2.0", "org.opencontainers.image.source": source,
	}
	if m.revision != "" {
		labels["org.opencontainers.image.revision"] = m.revision
	}
	config, err := json.Marshal(map[string]any{
		"architecture": m.arch, "os": "linux",
		"config": map[string]any{
			"User": fmt.Sprintf("%d:%d", user, user), "Entrypoint": []string{"/" + path.Join(folder, m.programs[0].name)}, "Labels": labels,
		},
		"rootfs": map[string]any{"type": "layers", "diff_ids": []string{digest(layer)}},
	})
	if err != nil {
		return descriptor{}, err
	}
	layerAt := b.add("application/vnd.oci.image.layer.v1.tar+gzip", packed)
	configAt := b.add("application/vnd.oci.image.config.v1+json", config)
	manifest, err := json.Marshal(map[string]any{
		"schemaVersion": 2, "mediaType": manifestType, "config": configAt, "layers": []descriptor{layerAt},
	})
	if err != nil {
		return descriptor{}, err
	}
	d := b.add(manifestType, manifest)
	d.Platform = &platform{m.arch, "linux"}
	return d, nil
}

// layer returns the file system of the image: the binaries, the documents, their folders and a /tmp.
func (m image) layer() ([]byte, error) {
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	folders := "etc tmp usr usr/local usr/local/bin"
	if len(m.docs) > 0 {
		folders += " usr/share usr/share/doc " + docs
	}
	for dir := range strings.SplitSeq(folders, " ") {
		mode := int64(0o755)
		if dir == "tmp" {
			mode = 0o1777
		}
		if err := w.WriteHeader(
			&tar.Header{Typeflag: tar.TypeDir, Name: dir + "/", Mode: mode, ModTime: time.Unix(0, 0), Format: tar.FormatUSTAR}); err != nil {
			return nil, err
		}
	}
	passwd := fmt.Sprintf("root:x:0:0:root:/:/none\nistio-proxy:x:%d:%d:istio-proxy:/:/none\n", user, user)
	if err := addFile(w, "etc/passwd", []byte(passwd), 0o644); err != nil {
		return nil, err
	}
	for _, p := range m.programs {
		if err := addFile(w, path.Join(folder, p.name), p.content, 0o755); err != nil {
			return nil, err
		}
	}
	for _, d := range m.docs {
		if err := addFile(w, path.Join(docs, d.name), d.content, 0o644); err != nil {
			return nil, err
		}
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	return b.Bytes(), nil
}

func addFile(w *tar.Writer, name string, content []byte, mode int64) error {
	err := w.WriteHeader(&tar.Header{
		Typeflag: tar.TypeReg, Name: path.Clean(name), Size: int64(len(content)), Mode: mode, ModTime: time.Unix(0, 0), Format: tar.FormatUSTAR,
	})
	if err == nil {
		_, err = w.Write(content)
	}
	return err
}

func compress(content []byte) ([]byte, error) {
	var b bytes.Buffer
	w, err := gzip.NewWriterLevel(&b, gzip.BestSpeed)
	if err != nil {
		return nil, err
	}
	if _, err := w.Write(content); err != nil {
		return nil, err
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	return b.Bytes(), nil
}

func digest(content []byte) string {
	sum := sha256.Sum256(content)
	return "sha256:" + hex.EncodeToString(sum[:])
}
