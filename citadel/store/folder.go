package store

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/istiod-lite/istiod-lite/api/safe"
)

// Folder is a Store in a folder. The files of each version are in a subfolder, and a symbolic link names the current
// one, so that a State changes atomically. Only the owner may read them.
type Folder struct{ Path string }

// current is the name of the symbolic link.
const current = "ca"

// maxFile bounds the size of one file, in bytes.
const maxFile = 1 << 20

// String returns the path.
func (f Folder) String() string { return f.Path }

// Load returns the current files. If another process replaces the version while it is read, Load reads the new one.
func (f Folder) Load(context.Context) (map[string][]byte, string, error) {
	if err := Private(f.Path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, "", err
	}
	for {
		version, err := f.version()
		if version == "" || err != nil {
			return nil, "", err
		}
		files, err := readPrivate(filepath.Join(f.Path, version))
		if now, other := f.version(); now == version || other != nil { // nothing was removed during the read
			return files, version, errors.Join(err, other)
		}
	}
}

// version returns the name of the current version's folder, or "" if there is none.
func (f Folder) version() (string, error) {
	path := filepath.Join(f.Path, current)
	version, err := os.Readlink(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return "", nil
	case errors.Is(err, unix.EINVAL):
		return "", fmt.Errorf("%s is no symbolic link: copy the folder with its links, as by cp -a", path)
	}
	return version, err
}

// readPrivate returns the regular files of a version's folder by name. It is an error if the keys are not private.
func readPrivate(dir string) (map[string][]byte, error) {
	if i, err := os.Stat(dir); err != nil {
		return nil, err
	} else if err := owned(dir, i); err != nil {
		return nil, err
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, err
	}
	defer func() { _ = root.Close() }()
	list, err := fs.ReadDir(root.FS(), ".")
	if err != nil {
		return nil, err
	}
	files := map[string][]byte{}
	for _, e := range list {
		if e.IsDir() {
			continue
		}
		if e.Name() == keyFile || e.Name() == nextKeyFile {
			if err := Private(filepath.Join(dir, e.Name())); err != nil {
				return nil, err
			}
		}
		if files[e.Name()], err = readFile(filepath.Join(dir, e.Name())); err != nil {
			return nil, err
		}
	}
	return files, nil
}

// dangling returns the error of opening a file. If the file is a link without a target, the error is not
// fs.ErrNotExist, because such a file is expected to exist.
func dangling(name string, err error) error {
	if _, link := os.Lstat(name); link == nil && errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%s is a link to a file or folder that is not there", name)
	}
	return err
}

func readFile(name string) ([]byte, error) {
	file, err := safe.Open(name)
	if err != nil {
		return nil, dangling(name, err)
	}
	defer func() { _ = file.Close() }()
	text, err := io.ReadAll(io.LimitReader(file, maxFile+1))
	if err == nil && len(text) > maxFile {
		err = fmt.Errorf("%s has more than %d bytes", name, maxFile)
	}
	return text, err
}

// Save replaces the files of a version.
func (f Folder) Save(ctx context.Context, files map[string][]byte, version string) error {
	if err := MakePrivate(f.Path); err != nil {
		return err
	}
	unlock, err := f.lock()
	if err != nil {
		return err
	}
	defer unlock()
	switch _, now, err := f.Load(ctx); {
	case err != nil:
		return err
	case now != version:
		return ErrConflict
	}
	sum := sha256.New()
	next, err := os.MkdirTemp(f.Path, ".ca-")
	if err != nil {
		return err
	}
	saved := false
	defer func() {
		if !saved { // otherwise each try would leave a folder, for example on a full disk
			_ = os.RemoveAll(next)
		}
	}()
	for name, text := range files {
		if err := writeFile(filepath.Join(next, name), text); err != nil {
			return err
		}
		_, _ = fmt.Fprintf(sum, "%s %d %s", name, len(text), text)
	}
	if err := syncFolder(next); err != nil {
		return err
	}
	link := filepath.Join(f.Path, current+"."+hex.EncodeToString(sum.Sum(nil)[:8]))
	if err := os.Remove(link); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := os.Symlink(filepath.Base(next), link); err != nil {
		return err
	}
	if err := os.Rename(link, filepath.Join(f.Path, current)); err != nil {
		return err
	}
	saved = true
	if err := syncFolder(f.Path); err != nil {
		return err
	}
	return f.removeOthers(filepath.Base(next))
}

// MakePrivate creates a folder for private keys if it does not exist. It returns an error unless the folder is private.
func MakePrivate(path string) error {
	if err := os.MkdirAll(path, 0o700); err != nil {
		if _, missing := os.Stat(path); errors.Is(missing, fs.ErrNotExist) {
			return dangling(path, missing)
		}
		return err
	}
	return Private(path)
}

// Private returns an error if a user other than root and this process's own may read or change a file or folder that
// holds private keys.
func Private(path string) error {
	i, err := os.Stat(path)
	if err != nil {
		return err
	}
	if err := owned(path, i); err != nil {
		return err
	}
	switch mode := i.Mode().Perm(); {
	case mode&0o022 != 0:
		return fmt.Errorf("others may write %s, which holds private keys: make sure that they are yours, then chmod go= %s", path, path)
	case mode&0o077 != 0:
		return fmt.Errorf("others may read %s, which holds private keys: chmod go= %s", path, path)
	}
	return nil
}

// owned returns an error unless a file or folder belongs to root or to this process's user. Another owner could replace
// its content.
func owned(path string, i fs.FileInfo) error {
	self := os.Geteuid()
	if s, ok := i.Sys().(*syscall.Stat_t); !ok || s.Uid != 0 && int(s.Uid) != self {
		return fmt.Errorf("%s belongs to another user, who may replace the private keys: make sure that they are yours, then chown -R %d %s",
			path, self, path)
	}
	return nil
}

// lock takes the folder's lock. The operating system releases it when the process ends.
func (f Folder) lock() (unlock func(), err error) {
	file, err := os.OpenFile(filepath.Join(f.Path, ".lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(file.Fd()), unix.LOCK_EX); err != nil {
		_ = file.Close()
		return nil, err
	}
	return func() { _ = file.Close() }, nil
}

func writeFile(name string, text []byte) error {
	file, err := os.OpenFile(name, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = file.Write(text)
	return errors.Join(err, file.Sync(), file.Close())
}

func syncFolder(path string) error {
	d, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// removeOthers removes earlier versions and leftovers of crashes.
func (f Folder) removeOthers(keep string) error {
	list, err := os.ReadDir(f.Path)
	if err != nil {
		return err
	}
	var problems []error
	for _, e := range list {
		if name := e.Name(); name != keep && (strings.HasPrefix(name, ".ca-") || strings.HasPrefix(name, current+".")) {
			problems = append(problems, os.RemoveAll(filepath.Join(f.Path, name)))
		}
	}
	return errors.Join(problems...)
}
