package release

import (
	"bytes"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/istiod-lite/istiod-lite/deploy/e2e/binaries"
	"github.com/istiod-lite/istiod-lite/deploy/must"
)

const version = "9.8.7-lite.6"

// made is a release in a clone of this tree.
type made struct {
	clone, dir string
	key        string // the private key
	env        []string
}

// first is the release that all tests share. Making it takes minutes.
var first made

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "release")
	if err == nil {
		first, err = release(filepath.Join(dir, "a"), nil)
	}
	status := 1
	if err == nil {
		status = m.Run()
	} else {
		fmt.Fprintln(os.Stderr, err)
	}
	os.RemoveAll(dir)
	os.Exit(status)
}

// release clones this tree into a folder and makes a release there, with more variables.
func release(clone string, env []string) (made, error) {
	root, err := binaries.ModuleRoot()
	if err != nil {
		return made{}, err
	}
	tools := filepath.Join(root, ".tools")
	for _, name := range []string{"goreleaser", "cosign", "cyclonedx-gomod", "go-licenses", "helm4"} {
		if _, err := os.Stat(filepath.Join(tools, name)); err != nil {
			return made{}, fmt.Errorf("%w: `make %s` builds it", err, filepath.Join(tools, name))
		}
	}
	m := made{clone: clone, dir: filepath.Join(clone, "bin", "release"), key: filepath.Join(clone, "..", "cosign.key")}
	m.env = append(os.Environ(), "PATH="+tools+":"+os.Getenv("PATH"), "COSIGN_PASSWORD=secret", "COSIGN_KEY="+m.key)
	if err := os.MkdirAll(filepath.Dir(clone), 0o755); err != nil {
		return m, err
	}
	if err := m.run(filepath.Dir(clone), "git", "clone", "--quiet", root, clone); err != nil {
		return m, err
	}
	if _, err := os.Stat(m.key); err != nil {
		if err := m.run(filepath.Dir(m.key), "cosign", "generate-key-pair"); err != nil {
			return m, err
		}
	}
	m.env = append(m.env, env...)
	return m, m.run(clone, "deploy/release/release.sh", version, "bin/release", tools)
}

// run runs a command in a folder, with the PATH of the release. The error has its output.
func (m made) run(dir string, command ...string) error {
	cmd := exec.Command("env", command...)
	cmd.Dir, cmd.Env = dir, m.env
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w\n%s", strings.Join(command, " "), err, out)
	}
	return nil
}

// files returns the content of the files in a folder.
func files(t *testing.T, dir string) map[string][]byte {
	t.Helper()
	entries, err := os.ReadDir(dir)
	must.Succeed(t, err)
	all := map[string][]byte{}
	for _, e := range entries {
		all[e.Name()], err = os.ReadFile(filepath.Join(dir, e.Name()))
		must.Succeed(t, err)
	}
	return all
}

// The second release is made with the settings of another user: another time zone, language and mask of permissions,
// and an empty cache. It writes only to this cache and to the folder bin of its clone.
func TestSameBytes(t *testing.T) {
	old := syscall.Umask(0o077)
	defer syscall.Umask(old)
	dir := t.TempDir()
	home, temporary := filepath.Join(dir, "home"), filepath.Join(dir, "tmp")
	must.Succeed(t, os.Mkdir(home, 0o700))
	must.Succeed(t, os.Mkdir(temporary, 0o700))
	modules, err := exec.Command("go", "env", "GOMODCACHE").Output()
	must.Succeed(t, err)
	second, err := release(filepath.Join(dir, "another-folder", "b"), []string{
		"GOCACHE=" + filepath.Join(dir, "cache"), "TZ=Asia/Tokyo", "LC_ALL=C.UTF-8", "USER=somebody", "HOME=" + home, "TMPDIR=" + temporary,
		"GOMODCACHE=" + strings.TrimSpace(string(modules)), "GOFLAGS=-buildvcs=true", "GOAMD64=v3", "COSIGN_KEY=",
	})
	must.Succeed(t, err)
	a, b := files(t, first.dir), files(t, second.dir)
	if x, y := slices.Sorted(maps.Keys(a)), slices.Sorted(maps.Keys(b)); !slices.Equal(x, y) || len(x) < 16 {
		t.Fatalf("the releases have the files\n%v\n%v", x, y)
	}
	for name, content := range a {
		signed := strings.HasSuffix(name, ".sigstore.json") || name == "cosign.pub"
		if bytes.Equal(content, b[name]) == signed {
			t.Errorf("%s: equal is %v, and signatures alone differ", name, !signed)
		}
	}
	for _, folder := range []string{home, temporary} {
		must.Succeed(t, filepath.WalkDir(folder, func(path string, d fs.DirEntry, err error) error {
			// Go itself writes its telemetry there.
			if err == nil && !d.IsDir() && !strings.HasPrefix(path, filepath.Join(home, ".config", "go")+"/") {
				t.Errorf("a release writes %s", path)
			}
			return err
		}))
	}
	status := exec.Command("git", "status", "--porcelain", "--ignored")
	status.Dir = second.clone
	out, err := status.Output()
	must.Succeed(t, err)
	if string(out) != "!! bin/\n" {
		t.Errorf("a release leaves in its clone:\n%s", out)
	}
}

// copied returns the files of a release in a new folder.
func copied(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for name := range files(t, first.dir) {
		must.Succeed(t, os.Link(filepath.Join(first.dir, name), filepath.Join(dir, name)))
	}
	return dir
}

// write replaces a file. Others that link to the old one keep it.
func write(t *testing.T, name string, content []byte) {
	t.Helper()
	must.Succeed(t, os.RemoveAll(name))
	must.Succeed(t, os.WriteFile(name, content, 0o644))
}

func verify(dir, key string) error {
	return first.run(first.clone, "deploy/release/verify.sh", dir, key)
}

// names reports whether a fault that verify.sh prints names a file. It ignores the command and the lines about checks
// that passed.
func names(err error, file string) bool {
	if err == nil {
		return false
	}
	_, output, _ := strings.Cut(err.Error(), "\n")
	for line := range strings.Lines(output) {
		if !strings.HasPrefix(line, "ok: ") && strings.Contains(line, file) {
			return true
		}
	}
	return false
}

func TestChangedByte(t *testing.T) {
	key := strings.TrimSuffix(first.key, ".key") + ".pub"
	must.Succeed(t, verify(first.dir, key))
	must.Succeed(t, first.run(first.clone, "deploy/release/verify.sh", first.dir))
	dir := copied(t)
	for name, content := range files(t, dir) {
		// Each part of a file with signatures matters, so several places are tried.
		places := []int{len(content) / 2}
		if strings.HasSuffix(name, ".sigstore.json") {
			places = nil
			for i := range 16 {
				places = append(places, 1+i*(len(content)-2)/16)
			}
		}
		for _, at := range places {
			changed := bytes.Clone(content)
			changed[at] ^= 1
			write(t, filepath.Join(dir, name), changed)
			if err := verify(dir, key); !names(err, name) {
				t.Errorf("%s: with another byte at %d of %d: %v", name, at, len(content), err)
			}
		}
		must.Succeed(t, os.Remove(filepath.Join(dir, name)))
		if err := verify(dir, key); !names(err, name) {
			t.Errorf("without %s: %v", name, err)
		}
		write(t, filepath.Join(dir, name), content)
	}
	must.Succeed(t, verify(dir, key))
	write(t, filepath.Join(dir, "more"), []byte("more"))
	if err := verify(dir, key); err == nil || !strings.Contains(err.Error(), "no file is missing or too many") {
		t.Errorf("a file more: %v", err)
	}
	must.Succeed(t, os.Remove(filepath.Join(dir, "more")))

	// A release that another key signs belongs together, and is not the one of the trusted key.
	must.Succeed(t, resign(t, dir, ""))
	must.Succeed(t, first.run(first.clone, "deploy/release/verify.sh", dir))
	if err := verify(dir, key); err == nil || !strings.Contains(err.Error(), "cosign.pub is not the trusted key") {
		t.Errorf("another key: %v", err)
	}
}

// resign signs the files of a folder with the key, or a new one.
func resign(t *testing.T, dir, key string) error {
	t.Helper()
	signer := first
	signer.env = append(slices.Clone(first.env), "COSIGN_KEY="+key)
	return signer.run(first.clone, "deploy/release/sign.sh", dir, filepath.Join(first.clone, "bin/release-parts/predicate.json"))
}

// A release that was put together wrongly is signed like any other.
func TestDisagreement(t *testing.T) {
	key := strings.TrimSuffix(first.key, ".key") + ".pub"
	all := files(t, first.dir)
	sbom := "pilot-agent_" + version + "_linux_arm64.cdx.json"
	image := "istiod-lite_" + version + "_image.tar"
	replaced := func(name, old, next string) func(dir string) {
		if !bytes.Contains(all[name], []byte(old)) {
			t.Fatalf("%s has no %s", name, old)
		}
		return func(dir string) {
			write(t, filepath.Join(dir, name), bytes.Replace(all[name], []byte(old), []byte(next), 1))
		}
	}
	for _, test := range []struct {
		name   string
		change func(dir string)
		want   string
	}{
		{"a list of modules without one of them", replaced(sbom, `"name": "github.com/spf13/cobra"`, `"name": "github.com/spf13/viper"`),
			"modules of pilot-agent for arm64"},
		{"a list of modules of another program", func(dir string) {
			write(t, filepath.Join(dir, sbom), all["pilot-agent_"+version+"_linux_amd64.cdx.json"])
		}, sbom + " is not about pilot-agent for arm64"},
		{"a module without its licence", replaced(sbom, `"licenses"`, `"others"`), sbom + " has a module without a licence"},
		{"a package for another platform", replaced(sbom, "goarch=arm64", "goarch=amd64"), sbom + " has the URL of a package for another"},
		{"another blob in the image", func(dir string) {
			changed := bytes.Clone(all[image])
			changed[len(changed)/2] ^= 1
			write(t, filepath.Join(dir, image), changed)
		}, "a blob of the image is not sha256:"},
		{"the archive of another architecture", func(dir string) {
			write(t, filepath.Join(dir, "istiod-lite_"+version+"_linux_arm64.tar.gz"), all["istiod-lite_"+version+"_linux_amd64.tar.gz"])
		}, "pilot-discovery for arm64 was not built with GOARCH=arm64"},
		{"other licences than in the archive", replaced("THIRD_PARTY_LICENSES.txt", "---- ", "---- of "), "licences in the archive for amd64"},
		{"notes of another version", replaced("RELEASE_NOTES.md", version, "9.8.6"), "RELEASE_NOTES.md is not about " + version},
		{"the chart of another version", func(dir string) {
			name := filepath.Join(dir, "istiod-"+version+".tgz")
			must.Succeed(t, os.Remove(name))
			notes := filepath.Join(first.dir, "RELEASE_NOTES.md")
			must.Succeed(t, first.run(first.clone, "deploy/release/chart.sh", "charts/istiod", "9.8.6", notes, dir))
			must.Succeed(t, os.Rename(filepath.Join(dir, "istiod-9.8.6.tgz"), name))
		}, "the chart istiod does not have the version " + version},
	} {
		t.Run(test.name, func(t *testing.T) {
			dir := copied(t)
			test.change(dir)
			for _, name := range []string{"checksums.txt", "provenance.json", "cosign.pub", "checksums.sigstore.json", "provenance.sigstore.json"} {
				must.Succeed(t, os.Remove(filepath.Join(dir, name)))
			}
			must.Succeed(t, resign(t, dir, first.key))
			if err := verify(dir, key); err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("%v, want %q", err, test.want)
			}
		})
	}
}
