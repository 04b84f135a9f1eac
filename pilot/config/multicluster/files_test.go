package multicluster_test

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/istiod-lite/istiod-lite/api/watchfile"
	"github.com/istiod-lite/istiod-lite/deploy/must"
	"github.com/istiod-lite/istiod-lite/pilot/config/multicluster"
)

// named returns a kubeconfig of a server, whose cluster has the server's name without digits.
func named(server string) []byte {
	return bytes.Replace(kubeconfig(server), []byte("name: c\n"), []byte("name: "+strings.TrimRight(server, "0123456789")+"\n"), 1)
}

// TestFiles follows the kubeconfigs of a directory.
func TestFiles(t *testing.T) {
	dir := t.TempDir()
	inMesh(t, func(t *testing.T, m *mesh) {
		for _, server := range []string{"b1", "b2", "b3", "c1"} {
			m.servers.write(server, "x", server)
		}
		f := multicluster.NewFiles(multicluster.FilesOptions{
			Dir: dir, Limit: 1000, Controller: m.Controller, Watch: watchfile.Options{Poll: time.Second, NoWatch: true},
		})
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- f.Run(ctx) }()
		defer func() {
			cancel()
			must.Succeed(t, <-ended)
		}()
		write := func(name string, text []byte) {
			path := filepath.Join(dir, name)
			must.Succeed(t, os.MkdirAll(filepath.Dir(path), 0o700))
			must.Succeed(t, os.WriteFile(path, text, 0o600))
		}
		// follows lets the files be read, and checks the state, the statuses, and the findings by code and file.
		follows := func(state, statuses string, findings ...string) {
			t.Helper()
			time.Sleep(2 * time.Second)
			m.expect(t, state, statuses, m.codes())
			var got []string
			for _, d := range append(m.Findings(), f.Findings()...) {
				path, err := filepath.Rel(dir, d.File)
				must.Succeed(t, err)
				got = append(got, d.Code+" "+path)
				if strings.Contains(d.String(), token) {
					t.Errorf("a secret is shown: %s", d)
				}
			}
			if strings.Join(got, ", ") != strings.Join(findings, ", ") {
				t.Errorf("findings %v, want %v", got, findings)
			}
		}
		follows("", "")
		write("west/b.yaml", named("b1"))
		write("west/notes.txt", named("c1"))
		write(".hidden/c.yaml", named("c1"))
		write("west/.c.yaml", named("c1"))
		follows("b: x=b1", "b=synced")
		if path := m.Clusters()[0].SecretName; path != filepath.Join(dir, "west", "b.yaml") {
			t.Errorf("the cluster is named by %s", path)
		}
		write("west/b.yaml", named("b2"))
		follows("b: x=b2", "b=synced")
		write("a.yml", named("b3"))
		write("own.yaml", named("own1"))
		follows("b: x=b3", "b=synced", "OwnCluster own.yaml", "DuplicateCluster west/b.yaml")
		write("a.yml", []byte("users: [{user: {token: "+token+"}}"))
		write("new.yaml", nil)
		follows("b: x=b3", "b=synced", "OwnCluster own.yaml", "DuplicateCluster west/b.yaml", "ClusterNotConnected a.yml",
			"ClusterNotConnected new.yaml")
		must.Succeed(t, os.Remove(filepath.Join(dir, "a.yml")))
		must.Succeed(t, os.Remove(filepath.Join(dir, "new.yaml")))
		write("own.yaml", named("bad1"))
		follows("b: x=b2", "b=synced bad=closed", "ClusterNotConnected own.yaml")
		must.Succeed(t, os.RemoveAll(dir))
		follows("b: x=b2", "b=synced bad=closed", "ClusterNotConnected own.yaml", "ClusterNotConnected .")
		must.Succeed(t, os.Mkdir(dir, 0o700))
		follows("", "")

		// What is not read is said.
		write("b", named("b1"))
		write("b.YAML", named("b1"))
		must.Succeed(t, os.Symlink(t.TempDir(), filepath.Join(dir, "link")))
		follows("", "", "NotRead b", "NotRead b.YAML", "NotRead link")

		// The directory is a link, first to a directory, then to nothing. Then it is a file.
		must.Succeed(t, os.RemoveAll(dir))
		other := t.TempDir()
		must.Succeed(t, os.WriteFile(filepath.Join(other, "b.yaml"), named("b1"), 0o600))
		must.Succeed(t, os.Symlink(other, dir))
		follows("b: x=b1", "b=synced")
		must.Succeed(t, os.RemoveAll(other))
		follows("b: x=b1", "b=synced", "ClusterNotConnected .")
		must.Succeed(t, os.Remove(dir))
		must.Succeed(t, os.WriteFile(dir, named("b2"), 0o600))
		follows("b: x=b2", "b=synced")
	})
}

// TestClusterOfAFile takes the cluster of the current context, or another name if there is none.
func TestClusterOfAFile(t *testing.T) {
	const clusters = "clusters: [{name: z}, {name: a}]\n"
	const contexts = "contexts: [{name: x, context: {cluster: x1}}, {name: b, context: {cluster: b1}}]\n"
	for text, want := range map[string]string{
		clusters + contexts + "current-context: x\n":    "x1",
		clusters + contexts + "current-context: gone\n": "b1",
		clusters + "contexts: [{name: x}]\n":            "a",
		"":                                              "",
		"{ no":                                          "",
	} {
		dir := t.TempDir()
		must.Succeed(t, os.WriteFile(filepath.Join(dir, "a.yaml"), []byte(text), 0o600))
		inMesh(t, func(t *testing.T, m *mesh) {
			ctx, cancel := context.WithCancel(t.Context())
			f := multicluster.NewFiles(multicluster.FilesOptions{
				Dir: dir, Limit: 1000, Controller: m.Controller, Watch: watchfile.Options{NoWatch: true},
			})
			ended := make(chan error)
			go func() { ended <- f.Run(ctx) }()
			time.Sleep(time.Second)
			got := ""
			for _, c := range m.Clusters() {
				got += c.ID
			}
			if got != want || (len(f.Findings()) == 0) != (want != "") {
				t.Errorf("%q: cluster %q, want %q; findings %v", text, got, want, f.Findings())
			}
			cancel()
			must.Succeed(t, <-ended)
		})
	}
}
