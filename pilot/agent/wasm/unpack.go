package wasm

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"path"
)

// unpack extracts the module from a download, which is a module, a gzip of one, or a tar archive with plugin.wasm.
func unpack(b []byte, limit int64) ([]byte, error) {
	if bytes.HasPrefix(b, []byte{0x1f, 0x8b}) {
		z, err := gzip.NewReader(bytes.NewReader(b))
		if err != nil {
			return nil, err
		}
		if b, err = readAll(z, limit); err != nil {
			return nil, err
		}
	}
	if isModule(b) {
		return b, nil
	}
	for archive := tar.NewReader(bytes.NewReader(b)); ; {
		h, err := archive.Next()
		if err != nil {
			return nil, fmt.Errorf("the file is neither a Wasm module nor an archive with plugin.wasm: %w", err)
		}
		if path.Base(h.Name) != "plugin.wasm" || h.Typeflag != tar.TypeReg {
			continue
		}
		if b, err = readAll(archive, limit); err != nil {
			return nil, err
		}
		if !isModule(b) {
			return nil, errors.New("plugin.wasm in the archive is not a Wasm module")
		}
		return b, nil
	}
}

// isModule reports whether b begins with the magic number of Wasm modules.
func isModule(b []byte) bool { return bytes.HasPrefix(b, []byte("\x00asm")) }

func readAll(r io.Reader, limit int64) ([]byte, error) {
	b, err := io.ReadAll(io.LimitReader(r, limit+1))
	if err == nil && int64(len(b)) > limit {
		err = fmt.Errorf("the unpacked file has more than %d bytes", limit)
	}
	return b, err
}
