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

// file is a secret that is read from files: a certificate and its key, or roots.
type file struct {
	name              string
	chain, key, roots string // paths
	// users is the number of callers of Follow that have not canceled.
	users int
	// reading reports that a goroutine reads the files and owns stamp.
	reading bool
	stamp   [3]watchfile.Stamp
	secret  *Secret // last valid content, or nil
	err     error   // why the current content is invalid, or nil
}

// systemRoots are the files in which operating systems keep the CA certificates that they trust. The path "system"
// stands for the first that exists.
var systemRoots = [...]string{
	"/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt", "/etc/ssl/ca-bundle.pem", "/etc/ssl/cert.pem",
	"/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",
}

// maxFiles is the maximum number of secrets in files, because the control plane names them.
const maxFiles = 1000

// Follow watches the files of secrets until cancel is called. Files without a follower are dropped if there are too
// many. Follow ignores names of other secrets.
func (m *Manager) Follow(names []string) (cancel func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	var followed []*file
	for _, name := range names {
		if name == Workload || name == Roots {
			continue
		}
		_, _ = m.get(name) // Get reports the error
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

// addFile returns a secret in files, and reads and watches the files from now on. The caller holds the lock.
func (m *Manager) addFile(name, chain, key, roots string) (*Secret, error) {
	f := m.files[name]
	if f == nil {
		if len(m.files) >= maxFiles {
			maps.DeleteFunc(m.files, func(_ string, f *file) bool { return f.users == 0 && !m.isWorkload(f) })
		}
		if len(m.files) >= maxFiles {
			return nil, fmt.Errorf("secret %q: the limit of %d secrets in files is reached", name, maxFiles)
		}
		f = &file{name: name, chain: chain, key: key, roots: roots, err: errors.New("the files are being read")}
		m.files[name] = f
		m.startReading(f)
	}
	if f.secret == nil {
		return nil, errors.Join(f.err, ErrPending)
	}
	return f.secret, nil
}

// isWorkload reports whether a file has the certificate or the roots of the workload itself.
func (m *Manager) isWorkload(f *file) bool { return f.name == Workload || f.name == Roots }

// readFiles reads the files of all secrets that are not being read.
func (m *Manager) readFiles() {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, f := range m.files {
		m.startReading(f)
	}
}

// startReading starts a goroutine that reads the files of a secret if they have changed, and notifies the
// subscribers. The files may be on a mount that hangs, which must not delay other secrets. The caller holds the lock.
func (m *Manager) startReading(f *file) {
	if f.reading {
		return
	}
	f.reading = true
	loaded := f.secret != nil
	safe.Go(m.o.Log, "files", func() {
		var secret *Secret
		var stamp [3]watchfile.Stamp
		err := errors.New("reading the files panicked")
		changed := false
		defer func() {
			m.mu.Lock()
			changed = m.store(f, secret, stamp, err)
			m.mu.Unlock()
			if changed {
				m.notify(f.name)
			}
		}()
		stamp = [3]watchfile.Stamp{watchfile.StampAt(f.chain), watchfile.StampAt(f.key), watchfile.StampAt(systemPath(f.roots))}
		if stamp == f.stamp && loaded {
			err = nil
			return
		}
		secret, err = f.load()
	})
}

// store stores the result of reading a secret, which is nil if the files have not changed. It reports whether the
// secret has changed. The caller holds the lock.
func (m *Manager) store(f *file, secret *Secret, stamp [3]watchfile.Stamp, err error) bool {
	f.reading = false
	if m.files[f.name] != f {
		return false // dropped since
	}
	if err != nil {
		if f.err == nil || f.err.Error() != err.Error() {
			m.metrics.fileFailures.Inc()
			m.o.Log.Warn("failed to read the files of a secret: their last valid content stays in use", "secret", f.name, "err", err)
		}
		f.err = err
		return false // f.stamp stays, so that a file that is still being written is read again
	}
	f.err, f.stamp = nil, stamp
	if secret == nil || f.secret != nil && secret.equal(f.secret) {
		return false
	}
	f.secret = secret
	switch f.name {
	case Roots:
		m.roots = secret.Roots
		return m.setRoots() != nil
	case Workload:
		m.workload = secret
		m.markOutputStale()
	}
	return true
}

// equal reports whether two secrets have the same content.
func (s *Secret) equal(o *Secret) bool {
	return bytes.Equal(s.Chain, o.Chain) && bytes.Equal(s.Key, o.Key) && bytes.Equal(s.Roots, o.Roots)
}

// load reads and checks the files.
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
		return &Secret{Name: f.name, Roots: text, Expires: earliestExpiry(list)}, nil
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

// systemPath returns the path of a file of roots. It replaces "system" by the path of the system's roots.
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

// Names of the files in Output, of the link to their current folder, and of these folders.
const (
	outputKey    = "key.pem"
	outputChain  = "cert-chain.pem"
	outputRoots  = "root-cert.pem"
	currentLink  = "..data"
	folderPrefix = "..certs-"
)

// markOutputStale wakes Run to write Output. The caller holds the lock.
func (m *Manager) markOutputStale() {
	m.outputStale = true
	m.watch.Wake()
}

// writeOutput writes the certificate, its key and the roots to Output, once all are available. The files are symbolic
// links into a folder that another link names. That link is replaced when a new folder is complete, so that a reader
// never gets a key and a certificate that do not match. If a write fails, the old files stay, and the next call tries
// again.
func (m *Manager) writeOutput() {
	m.mu.Lock()
	workload, roots, outputStale := m.workload, m.rootsSecret, m.outputStale
	m.outputStale = false
	m.mu.Unlock()
	if !outputStale || m.o.Output == "" || workload == nil || roots == nil {
		return
	}
	err := replaceOutput(m.o.Output, workload, roots)
	if err != nil {
		if !m.outputFailed {
			m.o.Log.Error("failed to write the certificate: the previous files stay", "folder", m.o.Output, "err", err)
		}
		m.metrics.fileFailures.Inc()
		m.mu.Lock()
		m.outputStale = true
		m.mu.Unlock()
	}
	m.outputFailed = err != nil
}

func replaceOutput(dir string, workload, roots *Secret) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	next, err := os.MkdirTemp(dir, folderPrefix)
	if err != nil {
		return err
	}
	defer func() {
		if link, _ := os.Readlink(filepath.Join(dir, currentLink)); link != filepath.Base(next) {
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
	if err := replaceLink(dir, filepath.Base(next), currentLink); err != nil {
		return err
	}
	existing, _ := filepath.Glob(filepath.Join(dir, folderPrefix+"*"))
	for _, old := range existing { // the previous folder, and folders that a crash left
		if old != next {
			_ = os.RemoveAll(old)
		}
	}
	for _, name := range []string{outputKey, outputChain, outputRoots} {
		target := filepath.Join(currentLink, name)
		if link, err := os.Readlink(filepath.Join(dir, name)); err == nil && link == target {
			continue
		}
		if err := replaceLink(dir, target, name); err != nil {
			return err
		}
	}
	return nil
}

// outputMode returns the mode of a folder for the files. If dir has the setgid bit, as a volume of a pod with an
// fsGroup has, so has the folder, and that group may read the key, for an application with another user.
func outputMode(dir string) (os.FileMode, error) {
	i, err := os.Stat(dir)
	if err != nil {
		return 0, err
	}
	return 0o755 | i.Mode()&os.ModeSetgid, nil
}

// replaceLink atomically replaces a symbolic link in a folder.
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
