package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path"
	"runtime"
	"strings"
	"time"
)

func main() {
	out := flag.String("o", "image.tar", "archive to write")
	version := flag.String("version", "unknown", "tag of the image")
	flag.Parse()
	if flag.NArg() == 0 {
		fmt.Fprintln(os.Stderr, "usage: image [-o FILE] [-version TAG] BINARY...")
		os.Exit(2)
	}
	var programs []program
	var err error
	for _, name := range flag.Args() {
		p := program{name: path.Base(name)}
		if p.content, err = os.ReadFile(name); err != nil {
			break
		}
		programs = append(programs, p)
	}
	if err == nil {
		var archive []byte
		if archive, err = build(programs, *version); err == nil {
			err = os.WriteFile(*out, archive, 0o644)
		}
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "image:", err)
		os.Exit(1)
	}
}

// user is the user ID of Istio's own images.
const (
	user   = 1337
	folder = "usr/local/bin"
)

// repository is the repository that the chart pulls from. Nodes and docker that load the archive have the image under
// its name.
const repository = "ghcr.io/istiod-lite/istiod-lite"

type descriptor struct {
	MediaType   string            `json:"mediaType"`
	Digest      string            `json:"digest"`
	Size        int               `json:"size"`
	Annotations map[string]string `json:"annotations,omitempty"`
}

// program is a binary and its name in the image.
type program struct {
	name    string
	content []byte
}

// build returns the archive of an image with the binaries. The image runs the first one.
func build(programs []program, version string) ([]byte, error) {
	layer, err := layerTar(programs)
	if err != nil {
		return nil, err
	}
	packed, err := compress(layer)
	if err != nil {
		return nil, err
	}
	blobs := map[string][]byte{}
	var order []string
	add := func(mediaType string, content []byte) descriptor {
		d := descriptor{MediaType: mediaType, Digest: digest(content), Size: len(content)}
		name := "blobs/sha256/" + strings.TrimPrefix(d.Digest, "sha256:")
		blobs[name] = content
		order = append(order, name)
		return d
	}
	config, err := json.Marshal(map[string]any{
		"architecture": runtime.GOARCH, "os": "linux",
		"config": map[string]any{
			"User": fmt.Sprintf("%d:%d", user, user), "Entrypoint": []string{"/" + path.Join(folder, programs[0].name)},
			"Labels": map[string]string{"org.opencontainers.image.version": version, "org.opencontainers.image.licenses": "Apache-2.0"},
		},
		"rootfs": map[string]any{"type": "layers", "diff_ids": []string{digest(layer)}},
	})
	if err != nil {
		return nil, err
	}
	layerAt := add("application/vnd.oci.image.layer.v1.tar+gzip", packed)
	configAt := add("application/vnd.oci.image.config.v1+json", config)
	manifest, err := json.Marshal(map[string]any{
		"schemaVersion": 2, "mediaType": "application/vnd.oci.image.manifest.v1+json", "config": configAt, "layers": []descriptor{layerAt},
	})
	if err != nil {
		return nil, err
	}
	manifestAt := add("application/vnd.oci.image.manifest.v1+json", manifest)
	manifestAt.Annotations = map[string]string{"org.opencontainers.image.ref.name": version,
		"io.containerd.image.name": repository + ":" + version}
	index, err := json.Marshal(map[string]any{
		"schemaVersion": 2, "mediaType": "application/vnd.oci.image.index.v1+json", "manifests": []descriptor{manifestAt},
	})
	if err != nil {
		return nil, err
	}
	blobs["oci-layout"] = []byte(`{"imageLayoutVersion":"1.0.0"}`)
	blobs["index.json"] = index

	var archive bytes.Buffer
	w := tar.NewWriter(&archive)
	for _, name := range append([]string{"oci-layout", "index.json"}, order...) {
		if err := addFile(w, name, blobs[name], 0o644); err != nil {
			return nil, err
		}
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	return archive.Bytes(), nil
}

// layerTar returns the file system of the image: the binaries, their folders and a /tmp.
func layerTar(programs []program) ([]byte, error) {
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for dir := range strings.SplitSeq("etc tmp usr usr/local usr/local/bin", " ") {
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
	for _, p := range programs {
		if err := addFile(w, path.Join(folder, p.name), p.content, 0o755); err != nil {
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
