package contain

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// Variable is the environment variable with the Root, in JSON.
const Variable = "E2E_CONTAINER"

// Root is a root directory, and the command that runs in it.
type Root struct {
	At      string            // an empty folder
	Binds   map[string]string // path in the root to path outside
	Dir     string            // the working directory; the default is /
	Command []string
}

// Run builds the root of the environment in the calling process's own mount namespace, and becomes the command. It
// returns only an error.
func Run() error {
	var r Root
	if err := json.Unmarshal([]byte(os.Getenv(Variable)), &r); err != nil {
		return fmt.Errorf("read %s: %w", Variable, err)
	}
	if len(r.Command) == 0 {
		return errors.New("there is no command")
	}
	if err := r.mount(); err != nil {
		return err
	}
	if err := errors.Join(unix.Chroot(r.At), os.Chdir("/"+strings.TrimPrefix(r.Dir, "/"))); err != nil {
		return fmt.Errorf("enter the root: %w", err)
	}
	env := slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, Variable+"=") })
	path, err := exec.LookPath(r.Command[0])
	if err != nil {
		return err
	}
	return fmt.Errorf("run %s: %w", path, unix.Exec(path, r.Command, env))
}

// mount builds the root.
func (r Root) mount() error {
	if err := unix.Mount("none", r.At, "tmpfs", 0, "mode=755"); err != nil {
		return fmt.Errorf("mount the root: %w", err)
	}
	for _, dir := range []string{"/tmp", "/etc", "/run"} {
		if err := os.Mkdir(r.At+dir, 0o777); err != nil {
			return err
		}
	}
	for _, dir := range []string{"/bin", "/sbin", "/lib", "/lib64", "/usr", "/proc", "/dev", "/sys"} {
		info, err := os.Lstat(dir)
		if err != nil {
			continue // not all systems have all folders
		}
		if info.Mode()&os.ModeSymlink != 0 {
			to, err := os.Readlink(dir)
			if err == nil {
				err = os.Symlink(to, r.At+dir)
			}
			if err != nil {
				return err
			}
			continue
		}
		if err := r.bind(dir, dir); err != nil {
			return err
		}
	}
	if err := unix.Mount("none", r.At+"/usr/local", "tmpfs", 0, "mode=755"); err != nil {
		return fmt.Errorf("mount /usr/local: %w", err)
	}
	var paths []string
	for to := range r.Binds {
		paths = append(paths, to)
	}
	slices.Sort(paths) // parents come first
	for _, to := range paths {
		if err := r.bind(r.Binds[to], to); err != nil {
			return err
		}
	}
	return nil
}

func (r Root) bind(from, to string) error {
	at := filepath.Join(r.At, to)
	info, err := os.Stat(from)
	if err != nil {
		return err
	}
	if info.IsDir() {
		err = os.MkdirAll(at, 0o755)
	} else if err = os.MkdirAll(filepath.Dir(at), 0o755); err == nil {
		var f *os.File
		if f, err = os.OpenFile(at, os.O_CREATE, 0o644); err == nil {
			err = f.Close()
		}
	}
	if err != nil {
		return err
	}
	if err := unix.Mount(from, at, "", unix.MS_BIND|unix.MS_REC, ""); err != nil {
		return fmt.Errorf("bind %s to %s: %w", from, to, err)
	}
	return nil
}
