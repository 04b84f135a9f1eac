package diff

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// extract lets git write the directory at the revision to the temporary directory. It keeps regular files only.
func (t *gitTree) extract(ctx context.Context) error {
	var said bytes.Buffer
	git := exec.CommandContext(ctx, "git", "-C", t.of, "archive", "--format=tar", t.revision, "--", ".")
	git.Stderr = &said
	out, err := git.Output()
	if err != nil {
		return fmt.Errorf("git archive: %w: %s", err, strings.TrimSpace(said.String()))
	}
	root, err := os.OpenRoot(t.dir)
	if err != nil {
		return err
	}
	defer root.Close()
	for r := tar.NewReader(bytes.NewReader(out)); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		name := filepath.FromSlash(strings.TrimSuffix(h.Name, "/"))
		switch h.Typeflag {
		case tar.TypeDir:
			if name != "." {
				err = root.MkdirAll(name, 0o755)
			}
		case tar.TypeReg:
			var text []byte
			if text, err = io.ReadAll(r); err == nil {
				err = root.WriteFile(name, text, 0o644)
			}
		}
		if err != nil {
			return err
		}
	}
}
