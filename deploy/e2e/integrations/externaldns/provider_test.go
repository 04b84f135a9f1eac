package externaldns

import (
	"encoding/json"
	"io"
	"maps"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/istiod-lite/istiod-lite/deploy/must"
)

// record is a DNS record in the protocol.
type record struct {
	DNSName    string            `json:"dnsName"`
	Targets    []string          `json:"targets"`
	RecordType string            `json:"recordType"`
	RecordTTL  int64             `json:"recordTTL,omitempty"`
	Labels     map[string]string `json:"labels,omitempty"`
}

// changes are changes of records in the protocol.
type changes struct {
	Create, UpdateOld, UpdateNew, Delete []record
}

// provider keeps records in memory.
type provider struct {
	mu      sync.Mutex
	records map[string]record // by name
}

// serve serves the protocol until the test ends, and returns the URL.
func (p *provider) serve(t *testing.T, host string) string {
	t.Helper()
	p.records = map[string]record{}
	l, err := net.Listen("tcp", net.JoinHostPort(host, "0"))
	must.Succeed(t, err)
	s := &http.Server{Handler: p, ReadHeaderTimeout: time.Minute}
	ended := make(chan struct{})
	go func() { defer close(ended); _ = s.Serve(l) }()
	t.Cleanup(func() { _ = s.Close(); <-ended })
	return "http://" + l.Addr().String()
}

// ServeHTTP answers a request of external-dns.
func (p *provider) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	p.mu.Lock()
	defer p.mu.Unlock()
	var answer any = struct{}{} // no filter of domains
	switch r.Method + " " + r.URL.Path {
	case "GET /":
	case "GET /records":
		answer = slices.Collect(maps.Values(p.records))
	case "POST /records":
		var c changes
		if err := json.NewDecoder(r.Body).Decode(&c); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		for _, r := range slices.Concat(c.UpdateOld, c.Delete) {
			delete(p.records, r.DNSName)
		}
		for _, r := range slices.Concat(c.Create, c.UpdateNew) {
			p.records[r.DNSName] = r
		}
		w.WriteHeader(http.StatusNoContent)
		return
	case "POST /adjustendpoints":
		wanted, err := io.ReadAll(r.Body)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		answer = json.RawMessage(wanted) // without adjustments
	default:
		http.NotFound(w, r)
		return
	}
	w.Header().Set("Content-Type", "application/external.dns.webhook+json;version=1")
	_ = json.NewEncoder(w).Encode(answer)
}

// all returns the records as lines: the name, the type and the targets, in the order of names.
func (p *provider) all() (lines []string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, name := range slices.Sorted(maps.Keys(p.records)) {
		r := p.records[name]
		lines = append(lines, name+" "+r.RecordType+" "+strings.Join(slices.Sorted(slices.Values(r.Targets)), ","))
	}
	return lines
}

// lookup returns the address of a name.
func (p *provider) lookup(name string) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	if r := p.records[name]; len(r.Targets) > 0 {
		return r.Targets[0]
	}
	return ""
}
