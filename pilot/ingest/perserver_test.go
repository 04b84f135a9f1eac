package ingest

import (
	"testing"

	"k8s.io/client-go/rest"
)

// secrets are the kubeconfigs of clusters, all of which have been read.
type secrets map[string][]byte

func (s secrets) Kubeconfig(cluster string) []byte { return s[cluster] }

func (secrets) HasSynced() bool { return true }

// TestPerServer: what is made of a cluster is made once for each kubeconfig, and forgotten with the cluster, also when
// only others are asked about.
func TestPerServer(t *testing.T) {
	kubeconfig := func(server string) []byte {
		return []byte(`{"apiVersion":"v1","kind":"Config","current-context":"c","clusters":[{"name":"c","cluster":{"server":"https://` + server +
			`"}}],"users":[{"name":"u","user":{"token":"x"}}],"contexts":[{"name":"c","context":{"cluster":"c","user":"u"}}]}`)
	}
	configs := secrets{"one": kubeconfig("192.0.2.1"), "two": kubeconfig("192.0.2.2")}
	made := 0
	p := &PerServer[string]{
		own: "https://own", cluster: "own", remote: configs, made: map[string]ofServer[string]{},
		make: func(c *rest.Config) (string, error) {
			made++
			return c.Host, nil
		},
	}
	is := func(cluster, want string, wantMade int) {
		t.Helper()
		v, known, err := p.Get(cluster)
		if err != nil || v != want || known != (want != "") || made != wantMade {
			t.Errorf("%s: %q, %v, %v, %d made, want %q, %d made", cluster, v, known, err, made, want, wantMade)
		}
	}
	is("own", "https://own", 0)
	is("one", "https://192.0.2.1", 1)
	is("one", "https://192.0.2.1", 1)
	is("two", "https://192.0.2.2", 2)
	configs["one"] = kubeconfig("192.0.2.3")
	is("one", "https://192.0.2.3", 3)
	delete(configs, "one")
	is("two", "https://192.0.2.2", 3)
	if len(p.made) != 1 {
		t.Errorf("what is kept: %v", p.made)
	}
	is("one", "", 3)
}
