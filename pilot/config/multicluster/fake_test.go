package multicluster_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/istiod-lite/istiod-lite/api/diag"
	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/deploy/leaks"
	"github.com/istiod-lite/istiod-lite/deploy/must"
	"github.com/istiod-lite/istiod-lite/pilot/config"
	"github.com/istiod-lite/istiod-lite/pilot/config/multicluster"
)

func TestMain(m *testing.M) { leaks.Main(m) }

const namespace = "istio-system"

// servers are API servers that fake sources read. A kubeconfig names one of them, and how it fares, in the host of its
// server: b1, hang1, bad1, panic1.
type servers struct {
	mu      sync.Mutex
	content map[string]map[string]string // by server: value by name of the object
	live    map[*source]bool
	hang    map[string]chan struct{} // what a source waits for before it syncs
	rogue   bool                     // sources speak of the server's own cluster too
}

type source struct {
	servers         *servers
	cluster, server string
	h               config.Handler
	push            chan []kinds.Change
	crash           chan error
	done            chan struct{} // closed when Run returns
}

const token = "eyJhbGciOiJSUzI1NiIs"

func kubeconfig(server string) []byte {
	if server == "" {
		return nil
	}
	return fmt.Appendf(
		nil, "apiVersion: v1\nclusters:\n- cluster: {server: https://%s}\n  name: c\nusers:\n- name: admin\n  user:\n    token: %s%s\n",
		server, token, server,
	)
}

func serverOf(kubeconfig []byte) string {
	_, rest, _ := bytes.Cut(kubeconfig, []byte("https://"))
	server, _, _ := bytes.Cut(rest, []byte("}"))
	return string(server)
}

func newServers() *servers {
	return &servers{content: map[string]map[string]string{}, live: map[*source]bool{}, hang: map[string]chan struct{}{}}
}

func (s *servers) connect(cluster string, kc []byte, h config.Handler) (config.Source, error) {
	server := serverOf(kc)
	switch {
	case strings.HasPrefix(server, "bad"):
		return nil, fmt.Errorf("read %s: the token %q%s has no use", server, token, server)
	case strings.HasPrefix(server, "panic"):
		panic("what to do with " + token + server)
	}
	return &source{s, cluster, server, h, make(chan []kinds.Change), make(chan error), make(chan struct{})}, nil
}

func object(cluster, name, value string) *kinds.Object {
	return &kinds.Object{
		Key: kinds.Key{Kind: kinds.Service, Namespace: "a", Name: name, Cluster: cluster}, Labels: map[string]string{"v": value},
		Spec: &corev1.Service{},
	}
}

func (s *source) Findings() []diag.Diagnostic {
	if !strings.HasPrefix(s.server, "unwell") {
		return nil
	}
	return []diag.Diagnostic{{Code: "APIServer", Message: s.server}}
}

func (s *source) Run(ctx context.Context) error {
	defer close(s.done)
	v := s.servers
	v.mu.Lock()
	hang := v.hang[s.server]
	if hang == nil && strings.HasPrefix(s.server, "hang") {
		hang = make(chan struct{})
		v.hang[s.server] = hang
	}
	v.live[s] = true
	v.mu.Unlock()
	defer func() {
		v.mu.Lock()
		defer v.mu.Unlock()
		delete(v.live, s)
	}()
	if hang != nil {
		select {
		case <-hang:
		case err := <-s.crash:
			return err
		case <-ctx.Done():
			return nil
		}
	}
	v.mu.Lock()
	var all []kinds.Change
	for name, value := range v.content[s.server] {
		o := object(s.cluster, name, value)
		all = append(all, kinds.Change{Key: o.Key, Object: o})
	}
	if v.rogue {
		o := object("", "rogue", "")
		all = append(all, kinds.Change{Key: o.Key, Object: o})
	}
	v.mu.Unlock()
	config.Sort(all)
	s.h(all)
	for {
		select {
		case <-ctx.Done():
			return nil
		case changes := <-s.push:
			s.h(changes)
		case err := <-s.crash:
			return err
		}
	}
}

func (s *servers) sources(server string) (list []*source) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for source := range s.live {
		if server == "" || source.server == server {
			list = append(list, source)
		}
	}
	return list
}

// write changes an object of a server, or deletes it if value is empty, and has its sources hand it on.
func (s *servers) write(server, name, value string) {
	s.mu.Lock()
	if s.content[server] == nil {
		s.content[server] = map[string]string{}
	}
	if s.content[server][name] = value; value == "" {
		delete(s.content[server], name)
	}
	hangs := s.hang[server] != nil
	s.mu.Unlock()
	if hangs {
		return // nobody has read it yet
	}
	for _, source := range s.sources(server) {
		o := object(source.cluster, name, value)
		c := kinds.Change{Key: o.Key, Object: o}
		if value == "" {
			c.Object = nil
		}
		source.push <- []kinds.Change{c}
	}
}

// mesh is a Controller with its surroundings.
type mesh struct {
	*multicluster.Controller
	servers *servers
	reg     *prometheus.Registry
	log     *bytes.Buffer

	mu      sync.Mutex
	broken  error // what the handler was promised and did not get
	calls   int
	objects map[kinds.Key]*kinds.Object
}

func newMesh() *mesh {
	m := &mesh{servers: newServers(), reg: prometheus.NewRegistry(), log: &bytes.Buffer{}, objects: map[kinds.Key]*kinds.Object{}}
	m.Controller = multicluster.New(multicluster.Options{
		Cluster: "own", Namespace: namespace, Connect: m.servers.connect, Handler: m.handle, Metrics: m.reg,
		Logger: slog.New(slog.NewTextHandler(m.log, &slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
			if a.Key == "stack" {
				return slog.Attr{}
			}
			return a
		}})),
	})
	return m
}

func (m *mesh) handle(changes []kinds.Change) {
	m.Clusters() // the handler may ask
	m.mu.Lock()
	defer m.mu.Unlock()
	m.calls++
	if len(changes) == 0 && m.calls > 1 {
		m.broken = errors.New("an empty call")
	}
	for _, c := range changes {
		old := m.objects[c.Key]
		switch {
		case c.Cluster == "":
			m.broken = fmt.Errorf("%v is of no remote cluster", c.Key)
		case c.Object == nil && old == nil:
			m.broken = fmt.Errorf("%v is deleted but was not there", c.Key)
		case c.Object == nil:
			delete(m.objects, c.Key)
		case old != nil && config.Equal(old, c.Object):
			m.broken = fmt.Errorf("%v changes nothing", c.Key)
		default:
			m.objects[c.Key] = c.Object
		}
	}
}

// state is what is in force, "b: x=1 y=2; c: x=3".
func (m *mesh) state() string {
	m.mu.Lock()
	defer m.mu.Unlock()
	list := map[string]map[string]string{}
	for key, o := range m.objects {
		if list[key.Cluster] == nil {
			list[key.Cluster] = map[string]string{}
		}
		list[key.Cluster][key.Name] = o.Labels["v"]
	}
	return show(list)
}

func show(list map[string]map[string]string) string {
	var all []string
	for cluster, content := range list {
		var words []string
		for name, value := range content {
			words = append(words, name+"="+value)
		}
		slices.Sort(words)
		if len(words) > 0 {
			all = append(all, cluster+": "+strings.Join(words, " "))
		}
	}
	slices.Sort(all)
	return strings.Join(all, "; ")
}

// statuses is "b=synced c=timeout".
func (m *mesh) statuses() string {
	var words []string
	for _, c := range m.Clusters() {
		words = append(words, c.ID+"="+c.SyncStatus)
	}
	return strings.Join(words, " ")
}

func (m *mesh) codes() string {
	var words []string
	for _, d := range m.Findings() {
		words = append(words, d.Code+" "+strings.TrimPrefix(d.Object, "Secret "+namespace+"/")+" "+strings.TrimPrefix(d.Field, "data."))
	}
	return strings.Join(words, ", ")
}

// check returns what must hold at any time.
func (m *mesh) check() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	text := fmt.Sprint(m.log.String(), m.Findings())
	switch {
	case m.broken != nil:
		return m.broken
	case strings.Contains(text, token[:8]):
		return fmt.Errorf("a kubeconfig's token is told: %s", text)
	case (m.calls > 0) != m.HasSynced():
		return fmt.Errorf("%d calls, synced %t", m.calls, m.HasSynced())
	}
	return nil
}

// metric checks the values of a metric, in the order of its labels.
func (m *mesh) metric(t *testing.T, name string, want ...float64) {
	t.Helper()
	families, err := m.reg.Gather()
	must.Succeed(t, err)
	var got []float64
	for _, f := range families {
		if f.GetName() == name {
			for _, metric := range f.GetMetric() {
				got = append(got, metric.GetCounter().GetValue()+metric.GetGauge().GetValue())
			}
		}
	}
	if !slices.Equal(got, want) {
		t.Errorf("%s is %v, want %v", name, got, want)
	}
}

// secret is a change of a Secret; data are pairs of cluster and server.
func secret(name string, age int, data ...string) kinds.Change {
	key := kinds.Key{Kind: kinds.Secret, Namespace: namespace, Name: name}
	s := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Data: map[string][]byte{}}
	for i := 0; i < len(data); i += 2 {
		s.Data[data[i]] = kubeconfig(data[i+1])
	}
	return kinds.Change{Key: key, Object: &kinds.Object{
		Key: key, Labels: map[string]string{multicluster.Label: multicluster.LabelValue}, Created: time.Unix(1e9-int64(age), 0), Spec: s,
	}}
}

func noSecret(name string) kinds.Change {
	return kinds.Change{Key: kinds.Key{Kind: kinds.Secret, Namespace: namespace, Name: name}}
}
