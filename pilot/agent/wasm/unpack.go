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

// unpack returns the module of what was fetched: the module itself, compressed, or as plugin.wasm in a tar archive.
func unpack(b []byte, most int64) ([]byte, error) {
	if bytes.HasPrefix(b, []byte{0x1f, 0x8b}) {
		z, err := gzip.NewReader(bytes.NewReader(b))
		if err != nil {
			return nil, err
		}
		if b, err = readAll(z, most); err != nil {
			return nil, err
		}
	}
	if isModule(b) {
		return b, nil
	}
	for archive := tar.NewReader(bytes.NewReader(b)); ; {
		h, err := archive.Next()
		if err != nil {
			return nil, fmt.Errorf("it is no Wasm module, and no archive with plugin.wasm: %w", err)
		}
		if path.Base(h.Name) != "plugin.wasm" || h.Typeflag != tar.TypeReg {
			continue
		}
		if b, err = readAll(archive, most); err != nil {
			return nil, err
		}
		if !isModule(b) {
			return nil, errors.New("its plugin.wasm is no Wasm module")
		}
		return b, nil
	}
}

// isModule reports whether bytes begin as the binary format of Wasm does.
func isModule(b []byte) bool { return bytes.HasPrefix(b, []byte("\x00asm")) }

func readAll(r io.Reader, most int64) ([]byte, error) {
	b, err := io.ReadAll(io.LimitReader(r, most+1))
	if err == nil && int64(len(b)) > most {
		err = fmt.Errorf("unpacked it has more than %d bytes", most)
	}
	return b, err
}
