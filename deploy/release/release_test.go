package release

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"sigs.k8s.io/yaml"

	"github.com/istiod-lite/istiod-lite/deploy/e2e/binaries"
	"github.com/istiod-lite/istiod-lite/deploy/must"
)

// script runs a script, and returns what it prints and whether it succeeded.
func script(name string, env []string, args ...string) (string, error) {
	cmd := exec.Command("./"+name, args...)
	cmd.Env = append(os.Environ(), env...)
	out, err := cmd.CombinedOutput()
	return string(out), err
}

func TestNotes(t *testing.T) {
	changelog := filepath.Join(t.TempDir(), "CHANGELOG.md")
	text := "# Changelog\n\n## Unreleased\n\n- new\n\n## 1.2.4\n\n### Fixed\n\n- old\n\n## 1.2.3\n\n"
	must.Succeed(t, os.WriteFile(changelog, []byte(text), 0o644))
	for _, test := range []struct{ version, want string }{
		{"1.2.4", "# istiod-lite 1.2.4\n\n### Fixed\n\n- old\n"},
		{"1.2.5", "# istiod-lite 1.2.5\n\n- new\n"},
		{"1.2.3", "notes.sh: " + changelog + " has no section 1.2.3 and nothing in the section Unreleased\n"},
	} {
		out, err := script("notes.sh", nil, test.version, changelog)
		if out != test.want || (err != nil) != strings.HasPrefix(test.want, "notes.sh") {
			t.Errorf("%s: %v, %q, want %q", test.version, err, out, test.want)
		}
	}
	if out, err := script("notes.sh", nil, "99.0.0", "../../CHANGELOG.md"); err != nil || !strings.Contains(out, "\n- ") {
		t.Errorf("CHANGELOG.md has no notes for a next release: %v %s", err, out)
	}
}

// chart is what a packaged chart says of itself.
type chart struct {
	Version, AppVersion string
	Annotations         map[string]string
}

func TestCharts(t *testing.T) {
	helm, err := binaries.Tool("helm4", "HELM4")
	must.Succeed(t, err)
	notes := filepath.Join(t.TempDir(), "notes.md")
	text := "# istiod-lite 9.8.7-lite.6\n\nWords.\n\n- A \"quoted\" change: it has\n  two lines.\n- Another\n\n### More\n\n- C\n"
	must.Succeed(t, os.WriteFile(notes, []byte(text), 0o644))
	for _, name := range []string{"base", "istiod", "gateway"} {
		var archives [2][]byte
		for i := range archives {
			out := t.TempDir()
			env := []string{"HELM4=" + helm, "SOURCE_DATE_EPOCH=1700000000", "HOME=" + out, "TZ=" + []string{"UTC", "Asia/Tokyo"}[i]}
			if text, err := script("chart.sh", env, "../../charts/"+name, "9.8.7-lite.6", notes, out); err != nil {
				t.Fatalf("%v\n%s", err, text)
			}
			if archives[i], err = os.ReadFile(filepath.Join(out, name+"-9.8.7-lite.6.tgz")); err != nil {
				t.Fatal(err)
			}
		}
		if !bytes.Equal(archives[0], archives[1]) {
			t.Errorf("%s is packaged differently each time", name)
		}
		var c chart
		must.Succeed(t, yaml.Unmarshal(chartFile(t, archives[0], name+"/Chart.yaml"), &c))
		var changes []string
		must.Succeed(t, yaml.Unmarshal([]byte(c.Annotations["artifacthub.io/changes"]), &changes))
		if want := []string{`A "quoted" change: it has two lines.`, "Another", "C"}; !slices.Equal(changes, want) {
			t.Errorf("%s has the changes %q, want %q", name, changes, want)
		}
		if c.Version != "9.8.7-lite.6" || c.AppVersion != "9.8.7-lite.6" || c.Annotations["artifacthub.io/license"] != "Apache-2.0" {
			t.Errorf("%s is %+v", name, c)
		}
		var images []struct{ Image string }
		must.Succeed(t, yaml.Unmarshal([]byte(c.Annotations["artifacthub.io/images"]), &images))
		if name == "istiod" && (len(images) != 1 || images[0].Image != "ghcr.io/istiod-lite/istiod-lite:9.8.7-lite.6") {
			t.Errorf("%s has the images %v", name, images)
		}
	}
}

// chartFile returns a file of a packaged chart, whose files have the time of SOURCE_DATE_EPOCH.
func chartFile(t *testing.T, archive []byte, name string) []byte {
	t.Helper()
	z, err := gzip.NewReader(bytes.NewReader(archive))
	must.Succeed(t, err)
	for r := tar.NewReader(z); ; {
		h, err := r.Next()
		must.Succeed(t, err)
		if !h.ModTime.Equal(time.Unix(1700000000, 0)) {
			t.Errorf("%s has the time %s", h.Name, h.ModTime)
		}
		if h.Name == name {
			content, err := io.ReadAll(r)
			must.Succeed(t, err)
			return content
		}
	}
}

// TestSettings compares goreleaser.yaml with the Makefile.
func TestSettings(t *testing.T) {
	text, err := os.ReadFile("goreleaser.yaml")
	must.Succeed(t, err)
	var settings struct {
		Builds []struct {
			ID, Main, Binary                        string
			Goos, Goarch, Env, Flags, Tags, Ldflags []string
		}
	}
	must.Succeed(t, yaml.Unmarshal(text, &settings))
	text, err = os.ReadFile("../../Makefile")
	must.Succeed(t, err)
	setting := func(name string) string {
		for line := range strings.SplitSeq(string(text), "\n") {
			if key, value, ok := strings.Cut(line, ":= "); ok && strings.TrimSpace(key) == name {
				return value
			}
		}
		t.Fatalf("the Makefile has no %s", name)
		return ""
	}
	ldflags := strings.ReplaceAll(setting("LDFLAGS"), "$(VERSION)", "{{ .Version }}")
	var built []string
	for _, b := range settings.Builds {
		built = append(built, b.Main)
		if b.ID != b.Binary || b.Main != "./cmd/"+b.Binary {
			t.Errorf("%s is built as %s from %s", b.ID, b.Binary, b.Main)
		}
		if !slices.Equal(b.Goos, []string{"linux"}) || !slices.Equal(b.Goarch, []string{"amd64", "arm64"}) {
			t.Errorf("%s is built for %v on %v", b.ID, b.Goos, b.Goarch)
		}
		if !slices.Contains(b.Env, "CGO_ENABLED=0") || !slices.Contains(b.Flags, "-trimpath") || !slices.Contains(b.Flags, "-buildvcs=false") {
			t.Errorf("%s is built with %v and %v: it is not the same each time", b.ID, b.Env, b.Flags)
		}
		if strings.Join(b.Tags, ",") != setting("TAGS") || !slices.Equal(b.Ldflags, []string{ldflags}) {
			t.Errorf("%s is built with %v and %v, and `make build` with %s and %s", b.ID, b.Tags, b.Ldflags, setting("TAGS"), ldflags)
		}
	}
	mains, err := filepath.Glob("../../cmd/*/main.go")
	must.Succeed(t, err)
	if len(mains) != len(built) {
		t.Errorf("a release has %v, and the programs are %v", built, mains)
	}
}

// TestRefused runs release.sh in a repository of its own, and not in this one.
func TestRefused(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "deploy", "release")
	must.Succeed(t, os.MkdirAll(dir, 0o755))
	must.Succeed(t, binaries.Copy(filepath.Join(dir, "release.sh"), "release.sh"))
	top := filepath.Dir(filepath.Dir(dir))
	if out, err := exec.Command("git", "init", "-q", top).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	for _, test := range []struct{ version, want string }{
		{"1.31", "1.31 is no version such as"},
		{"v1.31.1", "v1.31.1 is no version such as"},
		{"1.31.1-lite.2; true", "is no version such as"},
		{"1.31.1-lite.2", "the tree has changes without a commit"},
	} {
		out, err := exec.Command(filepath.Join(dir, "release.sh"), test.version, t.TempDir(), top).CombinedOutput()
		if err == nil || !strings.Contains(string(out), test.want) {
			t.Errorf("%s: %v\n%s", test.version, err, out)
		}
	}
}
