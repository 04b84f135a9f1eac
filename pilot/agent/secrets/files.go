package secrets

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"

	"github.com/istiod-lite/istiod-lite/api/armor"
	"github.com/istiod-lite/istiod-lite/api/safe"
	"github.com/istiod-lite/istiod-lite/api/watchfile"
	"github.com/istiod-lite/istiod-lite/pilot/agent/upstream"
)

// file is a secret of files: those of a certificate and its key, or that of roots.
type file struct {
	name              string
	chain, key, roots string // paths
	users             int    // who follow it: see Follow
	reading           bool   // a goroutine reads it, and owns the stamp
	stamp             [3]watchfile.Stamp
	secret            *Secret // the last that could be used
	err               error   // why the present ones cannot be used
}

// systemRoots are where operating systems keep the CA certificates they trust, and "system" in the place of a path is
// the first of them.
var systemRoots = [...]string{"/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt", "/etc/ssl/ca-bundle.pem", "/etc/ssl/cert.pem", "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem"}

// maxFiles bounds the secrets of files: the control plane names them.
const maxFiles = 1000

// Follow has the files of secrets followed until cancel is called. Files that nobody follows are forgotten when others
// are asked for and there are too many. Names of other secrets do nothing.
func (m *Manager) Follow(names []string) (cancel func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	var followed []*file
	for _, name := range names {
		if name == Workload || name == Roots {
			continue
		}
		_, _ = m.get(name) // who asks for it is told what is wrong
		if f := m.files[name]; f != nil {
			f.users++
			followed = append(followed, f)
		}
	}
	return func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		for _, f := range followed {
			if f.users--; f.users == 0 {
				delete(m.files, f.name)
			}
		}
	}
}

// addFile returns a secret of files, which are read and followed from now on. The caller holds the lock.
func (m *Manager) addFile(name, chain, key, roots string) (*Secret, error) {
	f := m.files[name]
	if f == nil {
		if len(m.files) >= maxFiles {
			maps.DeleteFunc(m.files, func(_ string, f *file) bool { return f.users == 0 && !m.own(f) })
		}
		if len(m.files) >= maxFiles {
			return nil, fmt.Errorf("secret %q: %d secrets of files are the most", name, maxFiles)
		}
		f = &file{name: name, chain: chain, key: key, roots: roots, err: errors.New("its files are being read")}
		m.files[name] = f
		m.startReading(f)
	}
	if f.secret == nil {
		return nil, errors.Join(f.err, ErrPending)
	}
	return f.secret, nil
}

// own reports whether a file is that of the workload itself.
func (m *Manager) own(f *file) bool { return f.name == Workload || f.name == Roots }

// readFiles has all files looked at whose last look has ended.
func (m *Manager) readFiles() {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, f := range m.files {
		m.startReading(f)
	}
}

// startReading has a goroutine read the files of a secret if they have changed, and tell the subscribers: files may be
// on a mount that hangs, which delays nothing else. The caller holds the lock.
func (m *Manager) startReading(f *file) {
	if f.reading {
		return
	}
	f.reading = true
	loaded := f.secret != nil
	safe.Go(m.o.Log, "files", func() {
		var next *Secret
		var now [3]watchfile.Stamp
		err := errors.New("internal error")
		changed := false
		defer func() {
			m.mu.Lock()
			changed = m.store(f, next, now, err)
			m.mu.Unlock()
			if changed {
				m.tell(f.name)
			}
		}()
		if now = [3]watchfile.Stamp{watchfile.StampAt(f.chain), watchfile.StampAt(f.key), watchfile.StampAt(systemPath(f.roots))}; now == f.stamp && loaded {
			err = nil
			return
		}
		next, err = f.load()
	})
}

// store takes what was read of a secret, or nil if nothing has changed, and reports whether the secret has. The caller
// holds the lock.
func (m *Manager) store(f *file, next *Secret, now [3]watchfile.Stamp, err error) bool {
	f.reading = false
	if m.files[f.name] != f {
		return false // forgotten
	}
	if err != nil {
		if f.err == nil || f.err.Error() != err.Error() {
			m.metrics.fileFailures.Inc()
			m.o.Log.Warn("files of a secret cannot be used: the last good ones are, if there are any", "secret", f.name, "err", err)
		}
		f.err = err
		return false // the stamp is that of before, so that a file that is still being written is read again
	}
	f.err, f.stamp = nil, now
	if next == nil || f.secret != nil && bytes.Equal(f.secret.Chain, next.Chain) && bytes.Equal(f.secret.Key, next.Key) && bytes.Equal(f.secret.Roots, next.Roots) {
		return false
	}
	f.secret = next
	switch {
	case f.name == Roots:
		m.roots = next.Roots
		return m.setRoots() != nil
	case f.name == Workload:
		m.workload = next
		m.write()
	}
	return true
}

func (f *file) load() (*Secret, error) {
	if f.roots != "" {
		text, err := upstream.ReadFile(systemPath(f.roots))
		if err != nil {
			return nil, err
		}
		list, err := armor.Certificates(text)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", systemPath(f.roots), err)
		}
		return &Secret{Name: f.name, Roots: text, Expires: firstEnd(list)}, nil
	}
	chain, err := upstream.ReadFile(f.chain)
	if err != nil {
		return nil, err
	}
	key, err := upstream.ReadFile(f.key)
	if err != nil {
		return nil, err
	}
	leaf, err := checkPair(chain, key)
	if err != nil {
		return nil, fmt.Errorf("%s and %s: %w", f.chain, f.key, err)
	}
	return &Secret{Name: f.name, Chain: chain, Key: armor.Labelled(key), Expires: leaf.NotAfter}, nil
}

// systemPath returns the path of roots: where this system has its own, for "system".
func systemPath(path string) string {
	if path != "system" {
		return path
	}
	for _, name := range systemRoots {
		if _, err := os.Stat(name); err == nil {
			return name
		}
	}
	return systemRoots[0]
}

// The files of Output, and the folder that holds them.
const (
	outputKey   = "key.pem"
	outputChain = "cert-chain.pem"
	outputRoots = "root-cert.pem"
	current     = "..data"
	folders     = "..certs-"
)

// write has Run write Output. The caller holds the lock.
func (m *Manager) write() {
	m.unwritten = true
	m.watch.Wake()
}

// writeOutput writes the certificate, its key and the roots, once all are there. The names are links into a folder that
// one link names, which is replaced when the folder is whole: a reader never gets a key that does not fit, and what
// cannot be written leaves what was there, and is written at the next call.
func (m *Manager) writeOutput() {
	m.mu.Lock()
	workload, roots, unwritten := m.workload, m.rootCAs, m.unwritten
	m.unwritten = false
	m.mu.Unlock()
	if !unwritten || m.o.Output == "" || workload == nil || roots == nil {
		return
	}
	err := replaceOutput(m.o.Output, workload, roots)
	if err != nil {
		if !m.outputFailed {
			m.o.Log.Error("the certificate cannot be written: the files are those of before", "folder", m.o.Output, "err", err)
		}
		m.metrics.fileFailures.Inc()
		m.mu.Lock()
		m.unwritten = true
		m.mu.Unlock()
	}
	m.outputFailed = err != nil
}

func replaceOutput(dir string, workload, roots *Secret) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	next, err := os.MkdirTemp(dir, folders)
	if err != nil {
		return err
	}
	defer func() {
		if to, _ := os.Readlink(filepath.Join(dir, current)); to != filepath.Base(next) {
			_ = os.RemoveAll(next)
		}
	}()
	mode, err := outputMode(dir)
	if err != nil {
		return err
	}
	if err := os.Chmod(next, mode); err != nil {
		return err
	}
	keyMode := os.FileMode(0o600)
	if mode&os.ModeSetgid != 0 {
		keyMode = 0o640
	}
	for _, f := range []struct {
		name string
		text []byte
		mode os.FileMode
	}{{outputKey, workload.Key, keyMode}, {outputChain, workload.Chain, 0o644}, {outputRoots, roots.Roots, 0o644}} {
		if err := writeSynced(filepath.Join(next, f.name), f.text, f.mode); err != nil {
			return err
		}
	}
	if err := replaceLink(dir, filepath.Base(next), current); err != nil {
		return err
	}
	all, _ := filepath.Glob(filepath.Join(dir, folders+"*"))
	for _, old := range all { // the last one, and what a crash has left
		if old != next {
			_ = os.RemoveAll(old)
		}
	}
	for _, name := range []string{outputKey, outputChain, outputRoots} {
		target := filepath.Join(current, name)
		if to, err := os.Readlink(filepath.Join(dir, name)); err == nil && to == target {
			continue
		}
		if err := replaceLink(dir, target, name); err != nil {
			return err
		}
	}
	return nil
}

// outputMode returns the mode of a folder of files. Below a folder whose group all files take, as a volume of a pod
// with an fsGroup is, they do so too: then that group may read the key, for an application of another user.
func outputMode(dir string) (os.FileMode, error) {
	i, err := os.Stat(dir)
	if err != nil {
		return 0, err
	}
	return 0o755 | i.Mode()&os.ModeSetgid, nil
}

// replaceLink has a name of a folder lead to a target, at once.
func replaceLink(dir, target, name string) error {
	temporary := filepath.Join(dir, ".."+strings.TrimLeft(name, ".")+".new")
	if err := os.Remove(temporary); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	if err := os.Symlink(target, temporary); err != nil {
		return err
	}
	if err := os.Rename(temporary, filepath.Join(dir, name)); err != nil {
		_ = os.Remove(temporary)
		return err
	}
	return nil
}

func writeSynced(name string, text []byte, mode os.FileMode) error {
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
	if err != nil {
		return err
	}
	_, err = f.Write(text)
	return errors.Join(err, f.Sync(), f.Close())
}
