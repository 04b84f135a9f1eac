package envoytest

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/istiod-lite/istiod-lite/pilot/envoy"
)

// Program returns the path of the Envoy to run: the one that the environment names, or the one in the tree's .tools.
func Program(t testing.TB) string {
	t.Helper()
	if program := os.Getenv("ENVOY"); program != "" {
		return program
	}
	dir, err := os.Getwd()
	for ; err == nil && dir != "/"; dir = filepath.Dir(dir) {
		if program := filepath.Join(dir, ".tools", "envoy"); isFile(program) {
			return program
		}
	}
	t.Fatal("there is no Envoy: set ENVOY, or run make .tools/envoy", err)
	return ""
}

func isFile(path string) bool {
	s, err := os.Stat(path)
	return err == nil && s.Mode().IsRegular()
}

// Resources is a collection of resources for one Envoy to validate. Equal resources are validated once.
type Resources struct {
	all      []resource
	seen     map[[sha256.Size]byte]bool
	clusters map[string]bool // names of all clusters; some filters refer to one that must exist
}

// resource is one resource to validate.
type resource struct {
	from    string // first place that the resource comes from
	name    string
	message proto.Message
}

// Add adds a resource, unless it is already there or its type is not validated. from describes the origin in messages.
func (r *Resources) Add(t testing.TB, from, typeURL string, res *envoy.Resource) {
	t.Helper()
	switch typeURL {
	case envoy.ClusterType, envoy.EndpointType, envoy.ListenerType, envoy.RouteType, envoy.ExtensionType:
	default:
		return
	}
	key := sha256.Sum256(append([]byte(typeURL), res.Bytes()...))
	if r.seen == nil {
		r.seen, r.clusters = map[[sha256.Size]byte]bool{}, map[string]bool{}
	}
	if r.seen[key] {
		return
	}
	r.seen[key] = true
	m, err := message(res)
	if err != nil {
		t.Fatalf("%s: %s: %v", from, res.Name, err)
	}
	if typeURL == envoy.ClusterType {
		r.clusters[res.Name] = true
	}
	r.all = append(r.all, resource{from, envoy.ShortType(typeURL) + " " + res.Name, m})
}

// Len returns the number of resources.
func (r *Resources) Len() int { return len(r.all) }

// Refusal is a resource that Envoy rejects.
type Refusal struct {
	From, Reason string
	Message      proto.Message
}

// Refused returns the resources that Envoy rejects, at most one from each place.
func (r *Resources) Refused(t testing.TB) []Refusal {
	t.Helper()
	q := question{t.Context(), Program(t), t.TempDir(), r.clusters, map[string]bool{}}
	list, err := q.refused(r.all)
	if err != nil {
		t.Fatal(err)
	}
	return list
}

// Check fails the test for each resource that Envoy rejects.
func (r *Resources) Check(t testing.TB) {
	t.Helper()
	for _, f := range r.Refused(t) {
		t.Errorf("Envoy refuses %s: %s", f.From, f.Reason)
	}
}

// question runs Envoy on a list of resources.
type question struct {
	ctx          context.Context
	program, dir string
	clusters     map[string]bool
	places       map[string]bool // places of rejected resources
}

func (q question) refused(all []resource) ([]Refusal, error) {
	all = slices.DeleteFunc(slices.Clone(all), func(r resource) bool { return q.places[r.from] })
	if len(all) == 0 {
		return nil, nil
	}
	reason, err := q.ask(all)
	switch {
	case err != nil || reason == "":
		return nil, err
	case len(all) == 1:
		q.places[all[0].from] = true
		return []Refusal{{all[0].from + ": " + all[0].name, reason, all[0].message}}, nil
	}
	first, err := q.refused(all[:len(all)/2])
	if err != nil {
		return nil, err
	}
	second, err := q.refused(all[len(all)/2:])
	if err == nil && len(first)+len(second) == 0 {
		err = fmt.Errorf("an Envoy refuses resources together that it takes apart: %s", reason)
	}
	return append(first, second...), err
}

// ask returns why Envoy rejects resources, or "" if it accepts them.
func (q question) ask(all []resource) (string, error) {
	b, err := proto.Marshal(bootstrap(all, q.clusters))
	if err != nil {
		return "", err
	}
	config := filepath.Join(q.dir, "envoy.pb")
	if err := os.WriteFile(config, b, 0o600); err != nil {
		return "", err
	}
	said, err := exec.CommandContext(q.ctx, q.program, "-c", config, "--mode", "validate", "-l", "error", "--concurrency",
		"1").CombinedOutput()
	var exit *exec.ExitError
	switch {
	case err == nil:
		return "", nil
	case errors.As(err, &exit) && q.ctx.Err() == nil:
		return short(string(said)), nil
	}
	return "", err
}

var logged = regexp.MustCompile(`(?m)^\[[^\]]*\]\[\d+\]\[\w+\]\[\w+\] \[[^\]]*\] `)

// short returns a message of Envoy without its time and source location.
func short(said string) string {
	said = strings.TrimSpace(logged.ReplaceAllString(said, ""))
	if _, why, ok := strings.Cut(said, "envoy.pb': "); ok {
		said = why
	}
	return said[:min(len(said), 1000)]
}
