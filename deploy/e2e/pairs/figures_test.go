//go:build compat

package pairs

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/miekg/dns"

	"github.com/istiod-lite/istiod-lite/deploy/must"
)

const (
	rounds = 3
	// rest is how long after its start an agent is at rest.
	rest = 15 * time.Second
	// scrapes of metrics are counted together.
	scrapes = 100
	// asking is how long, and by how many clients, DNS is asked.
	asking  = 3 * time.Second
	clients = 8
)

// figures are the measurements of one agent.
type figures struct {
	ready                   time.Duration
	rest, anonymous, scrape int           // kB: resident at rest, the part of it without a file, and resident after scrapes
	scraped                 time.Duration // CPU of all scrapes
	queries                 float64       // each second
	query                   time.Duration // CPU of one
}

// TestFiguresOfAgents measures both agents with this control plane, by turns, and prints the medians. It holds nothing.
func TestFiguresOfAgents(t *testing.T) {
	m := start(t)
	names := []string{"pilot-agent", "Istio's"}
	all := map[string][]figures{}
	for range rounds {
		for i, program := range []string{os.Getenv(agentVar), os.Getenv(istioAgentVar)} {
			all[names[i]] = append(all[names[i]], m.measure(t, program))
		}
	}
	var table strings.Builder
	fmt.Fprintf(&table,
		"\n| agent, median of %d | start to ready ms | RSS at rest MB | anonymous MB | RSS after scrapes MB | CPU of %d scrapes ms | DNS "+
			"queries/s | CPU a query µs |\n|---|---|---|---|---|---|---|---|\n", rounds, scrapes)
	for _, name := range names {
		of := func(value func(figures) float64) float64 {
			var list []float64
			for _, f := range all[name] {
				list = append(list, value(f))
			}
			slices.Sort(list)
			return list[len(list)/2]
		}
		fmt.Fprintf(&table, "| %s | %.0f | %.1f | %.1f | %.1f | %.0f | %.0f | %.1f |\n", name,
			of(func(f figures) float64 { return float64(f.ready.Milliseconds()) }), of(func(f figures) float64 { return float64(f.rest) / 1024 }),
			of(func(f figures) float64 { return float64(f.anonymous) / 1024 }), of(func(f figures) float64 { return float64(f.scrape) / 1024 }),
			of(func(f figures) float64 { return float64(f.scraped.Milliseconds()) }), of(func(f figures) float64 { return f.queries }),
			of(func(f figures) float64 { return float64(f.query.Nanoseconds()) / 1000 }))
	}
	t.Log(table.String())
}

func (m *mesh) measure(t *testing.T, program string) (f figures) {
	a := m.start(t, program, m.ours, "caller", "sidecar")
	f.ready = a.ready(t)
	process := outside(t, a.cmd.Process.Pid)
	time.Sleep(time.Until(a.began.Add(rest)))
	f.rest, f.anonymous = memory(t, process, "VmRSS"), memory(t, process, "RssAnon")
	before := cpu(t, process)
	for range scrapes {
		if code, text := a.ask(15020, "/stats/prometheus"); code != http.StatusOK {
			t.Fatalf("metrics: %d, %s", code, text)
		}
	}
	f.scraped, f.scrape = cpu(t, process)-before, memory(t, process, "VmRSS")

	ctx, cancel := context.WithTimeout(t.Context(), asking)
	defer cancel()
	var answers atomic.Int64
	var asked sync.WaitGroup
	before = cpu(t, process)
	began := time.Now()
	for range clients {
		asked.Go(func() {
			conn, err := a.dial(ctx, "udp", 15053)
			if err != nil {
				t.Error(err)
				return
			}
			defer conn.Close()
			client := &dns.Client{Timeout: requestTimeout}
			for ctx.Err() == nil {
				resp, _, err := client.ExchangeWithConn(new(dns.Msg).SetQuestion("named.b.svc.cluster.local.", dns.TypeA), &dns.Conn{Conn: conn})
				if err != nil || len(resp.Answer) != 1 {
					t.Errorf("DNS: %v, %v", resp, err)
					return
				}
				answers.Add(1)
			}
		})
	}
	asked.Wait()
	n := answers.Load()
	f.queries, f.query = float64(n)/time.Since(began).Seconds(), (cpu(t, process)-before)/time.Duration(max(n, 1))
	must.Succeed(t, a.cmd.Process.Signal(syscall.SIGTERM))
	<-a.done
	return f
}

// outside returns the folder in /proc of the outermost PID namespace, for a process of this namespace.
func outside(t *testing.T, pid int) string {
	t.Helper()
	all, err := filepath.Glob("/proc/[0-9]*")
	must.Succeed(t, err)
	own, err := os.Readlink("/proc/self/ns/pid")
	must.Succeed(t, err)
	for _, p := range all {
		ids := field(p, "NSpid") // in all namespaces, the innermost last
		if ns, err := os.Readlink(p + "/ns/pid"); err == nil && ns == own && len(ids) > 0 && ids[len(ids)-1] == strconv.Itoa(pid) {
			return p
		}
	}
	t.Fatalf("process %d is not in /proc", pid)
	return ""
}

// field returns the words of a line of a process's status.
func field(process, name string) []string {
	text, err := os.ReadFile(filepath.Join(process, "status"))
	if err != nil {
		return nil // it has ended
	}
	for line := range strings.Lines(string(text)) {
		if rest, ok := strings.CutPrefix(line, name+":"); ok {
			return strings.Fields(rest)
		}
	}
	return nil
}

// memory returns a figure of a process's status, in kB.
func memory(t *testing.T, process, name string) int {
	t.Helper()
	words := field(process, name)
	if len(words) == 0 {
		t.Fatalf("%s has no %s", process, name)
	}
	n, err := strconv.Atoi(words[0])
	must.Succeed(t, err)
	return n
}

// cpu returns the CPU time of a process, in steps of 10 ms.
func cpu(t *testing.T, process string) time.Duration {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(process, "stat"))
	must.Succeed(t, err)
	words := strings.Fields(string(text[strings.LastIndexByte(string(text), ')')+1:])) // from the state on
	total := 0
	for _, w := range words[11:13] { // of the program, and of the kernel for it
		n, err := strconv.Atoi(w)
		must.Succeed(t, err)
		total += n
	}
	return time.Duration(total) * 10 * time.Millisecond
}
