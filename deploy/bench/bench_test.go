package main

import (
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"

	"github.com/istiod-lite/istiod-lite/deploy/must"
)

func TestSpread(t *testing.T) {
	for _, c := range []struct {
		figures []float64
		want    spread
	}{
		{[]float64{3}, spread{3, 3, 3}},
		{[]float64{4, 1}, spread{1, 2.5, 4}},
		{[]float64{9, 1, 5}, spread{1, 5, 9}},
		{[]float64{7, 1, 3, 5}, spread{1, 4, 7}},
	} {
		before := slices.Clone(c.figures)
		if got := spreadOf(c.figures); got != c.want {
			t.Errorf("%v: got %v, want %v", c.figures, got, c.want)
		}
		if !slices.Equal(before, c.figures) {
			t.Errorf("the figures, %v, are now %v", before, c.figures)
		}
	}
}

func TestPercentile(t *testing.T) {
	var times []time.Duration
	for i := range 200 {
		times = append(times, time.Duration(i))
	}
	for share, want := range map[float64]time.Duration{0: 0, 0.5: 100, 0.99: 198, 1: 199} {
		if got := percentile(times, share); got != want {
			t.Errorf("%v: got %d, want %d", share, got, want)
		}
	}
	if got := percentile(nil, 0.5); got != 0 {
		t.Errorf("of nothing: got %v, want 0", got)
	}
}

func TestNumbers(t *testing.T) {
	if diff := cmp.Diff([]int{250, 1000}, numbers("1000, 250,1000")); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	for _, bad := range []string{"", "x", "1,,2", "0", "-3"} {
		if got := numbers(bad); got != nil {
			t.Errorf("%q: got %v, want nothing", bad, got)
		}
	}
}

func TestPickContenders(t *testing.T) {
	got, err := pick([]string{"w4", "W1"})
	if err != nil || len(got) != 2 || got[0].name() != "W1" || got[1].name() != "W4" {
		t.Errorf("got %v, %v, want W1 and W4 in their order", got, err)
	}
	for _, bad := range [][]string{{"W99"}, {"W1", "w1"}, {""}} {
		if got, err := pick(bad); err == nil {
			t.Errorf("%v: got %v, want an error", bad, got)
		}
	}
}

// TestAddress: the number in an address is found again in an encoded assignment, whatever stands around it.
func TestAddress(t *testing.T) {
	assignment := func(addresses ...string) []byte {
		a := &endpointv3.ClusterLoadAssignment{ClusterName: "outbound|80||172.host", Endpoints: []*endpointv3.LocalityLbEndpoints{{}}}
		for _, at := range addresses {
			socket := &corev3.Address{Address: &corev3.Address_SocketAddress{
				SocketAddress: &corev3.SocketAddress{Address: at, PortSpecifier: &corev3.SocketAddress_PortValue{PortValue: 8080}},
			}}
			a.Endpoints[0].LbEndpoints = append(a.Endpoints[0].LbEndpoints,
				&endpointv3.LbEndpoint{HostIdentifier: &endpointv3.LbEndpoint_Endpoint{Endpoint: &endpointv3.Endpoint{Address: socket}}})
		}
		b, err := proto.Marshal(a)
		must.Succeed(t, err)
		return b
	}
	if got := findAddress(assignment("10.128.0.1")); got != -1 {
		t.Errorf("without such an address: got %d, want -1", got)
	}
	for _, n := range []int{0, 1, 255, 256, 65535, 65536, 1<<20 - 1} {
		if got := findAddress(assignment("10.128.0.1", address(n), address(0))); got != n {
			t.Errorf("%s: got %d, want %d", address(n), got, n)
		}
	}
}

// TestUsage: this process has used CPU and memory, and more CPU after more work.
func TestUsage(t *testing.T) {
	before, err := usageOf(os.Getpid())
	must.Succeed(t, err)
	if before.rss < 1<<20 || before.peak < before.rss || before.files == 0 {
		t.Errorf("got %+v", before)
	}
	x := 1.0
	for after := before; after.cpu < before.cpu+20*time.Millisecond; { // ends when the kernel counts what is done here
		for range 1 << 20 {
			x = math.Sqrt(x + 1)
		}
		if after, err = usageOf(os.Getpid()); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := usageOf(1 << 30); err == nil {
		t.Error("a process that cannot be has used something")
	}
}

// TestResults: sections that were measured take the place of their old ones, others stay, and all are in the order of
// their numbers.
func TestResults(t *testing.T) {
	all := []contender{{name: istioDefault, title: "istiod"}, {name: istioTuned, title: "istiod, tuned"}, {name: lite, title: "istiod-lite"},
		{name: limitWhole, title: "limit"}, {name: limitSplit, title: "limit, VHDS"}}
	path := filepath.Join(t.TempDir(), "RESULTS.md")
	write := func(at point, l workload, byContender map[string][]figures) string {
		r := &results{contenders: all, footer: "Measured today."}
		for _, c := range all {
			for _, f := range byContender[c.name] {
				r.add(at, l, c.name, f)
			}
		}
		if at.services == 250 {
			r.fail(at, l, "istiod", 1, errors.New("it broke; its log, x, ends: y\nz"))
		}
		must.Succeed(t, r.write(path))
		b, err := os.ReadFile(path)
		must.Succeed(t, err)
		return string(b)
	}
	start := func(cpu, rss float64) figures { return figures{"CPU": cpu, "peak RSS": rss} }
	w1 := map[string][]figures{istioDefault: {start(2.5, 200), start(2, 200), start(3, 200)}, istioTuned: {start(2, 210)},
		lite: {start(1, 100)}}
	write(point{workload: "W1", services: 1000}, coldStart{}, w1)
	write(point{workload: "W4", services: 1000, proxies: 300, mode: stateOfTheWorld}, serviceComesAndGoes{},
		map[string][]figures{lite: {{"p50": 7}}})
	write(point{workload: "W4", services: 1000, proxies: 300, mode: delta}, serviceComesAndGoes{}, map[string][]figures{
		lite: {{"p50": 8, "p99": 9}}, limitWhole: {{"p99": 7}}, limitSplit: {{"p99": 6}},
	})
	write(point{workload: "W2a", services: 1000, proxies: 300, mode: delta}, connects{},
		map[string][]figures{lite: {{"refused": 1}}, istioTuned: {{"refused": 700}}})
	write(point{workload: "W2b", services: 1000, proxies: 300, mode: delta}, reconnects{},
		map[string][]figures{lite: {{"received by a proxy": 0}}, istioTuned: {{"received by a proxy": 900}}})
	write(point{workload: "W10", services: 1000, proxies: 300, mode: delta}, slowReaders{}, map[string][]figures{
		istioDefault: {{"RSS grows by": -7}}, istioTuned: {{"RSS grows by": 6}}, lite: {{"RSS grows by": 2, "p99": 15.01}},
	})
	write(point{workload: "W1", services: 250}, coldStart{}, w1)
	w1[lite] = []figures{start(1, 80)}
	text := write(point{workload: "W1", services: 1000}, coldStart{}, w1)

	var headings []string
	for _, s := range sectionsOf(text) {
		headings = append(headings, s.heading)
	}
	want := []string{"Goals", "W1, 250 services", "W1, 1000 services", "W2a, 1000 services, 300 proxies, delta",
		"W2b, 1000 services, 300 proxies, delta", "W4, 1000 services, 300 proxies, delta", "W4, 1000 services, 300 proxies, sotw",
		"W10, 1000 services, 300 proxies, delta"}
	if diff := cmp.Diff(want, headings); diff != "" {
		t.Errorf("headings (-want +got):\n%s", diff)
	}
	for _, line := range []string{
		"| CPU, s | 2.50 (2.00…3.00) | 2.00 (2.00…2.00) | 1.00 (1.00…1.00) | 2.50 | 2.00 | ratio ≥ 2.00: met |",
		"| peak RSS, MiB | 200 (200…200) | 210 (210…210) | 100 (100…100) | 2.00 | 2.10 | ratio ≥ 2.50: **missed** |",
		"| peak RSS, MiB | 200 (200…200) | 210 (210…210) | 80.0 (80.0…80.0) | 2.50 | 2.62 | ratio ≥ 2.50: met |",
		"| refused, streams | 700 (700…700) | 1.00 (1.00…1.00) | | ≤ 0: **missed** |",
		"| p50, ms | 8.00 (8.00…8.00) | | | |  |",
		"| p99, ms | 9.00 (9.00…9.00) | 7.00 (7.00…7.00) | 6.00 (6.00…6.00) | 1.50 | ratio ≥ 25.0 |",
		"| p50, ms | 7.00 (7.00…7.00) |  |",
		"| received by a proxy, kB | 900 (900…900) | 0 (0…0) | ∞ | ratio ≥ 50.0 |",
		"| RSS grows by, MiB | -7.00 (-7.00…-7.00) | 6.00 (6.00…6.00) | 2.00 (2.00…2.00) | | 3.00 |  |",
		"| p99, ms | | | 15.0 (15.0…15.0) | | | ≤ 15.0: **missed** |",
		"Failed: istiod, round 2: it broke",
		"2 met, 2 missed. The sections below say more.",
		"| W1, 1000 services | peak RSS, MiB | 200 | 210 | 80.0 |  |  | ratio ≥ 2.50: met |",
		"| W2a, 1000 services, 300 proxies, delta | refused, streams |  | 700 | 1.00 |  |  | ≤ 0: **missed** |",
		"| ready, s | | | | | |  |",
		"Measured today. Rounds: 3.",
	} {
		if !strings.Contains(text, line+"\n") {
			t.Errorf("no line %s in\n%s", line, text)
		}
	}
	if strings.Contains(text, "| W1, 250 services |") {
		t.Error("a goal is held against a world that it is not for")
	}
	if n := strings.Count(text, "# Results"); n != 1 {
		t.Errorf("%d titles, want 1", n)
	}
}

// TestPlots: what the file holds is drawn, one picture a workload, and linked from it; a workload that was measured at
// one point alone has none.
func TestPlots(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "RESULTS.md")
	r := &results{contenders: []contender{{name: istioTuned, title: "istiod, tuned"}, {name: lite, title: "istiod-lite"}}}
	for _, at := range []point{{"W3", 250, 300, delta}, {"W3", 1000, 300, delta}, {"W3", 1000, 100, delta}, {"W3", 4000, 300, delta},
		{"W5", 1000, 300, delta}, {"W5", 250, 300, stateOfTheWorld}} {
		r.add(at, endpointFlips{}, lite, figures{"CPU a change": float64(at.services), "p99": float64(at.proxies)})
		r.add(at, endpointFlips{}, istioTuned, figures{"CPU a change": 0, "p99": 2 * float64(at.proxies)})
	}
	must.Succeed(t, r.write(path))
	for range 2 { // drawn again they look the same
		if any, err := drawFile(path, filepath.Join(dir, plotFolder)); err != nil || !any {
			t.Fatalf("drawn: %v, %v", any, err)
		}
	}
	text, err := os.ReadFile(path)
	must.Succeed(t, err)
	if got, want := strings.Count(string(text), "!["), 1; got != want || !strings.Contains(string(text), "![W3](plots/W3.svg)") {
		t.Errorf("%d pictures, want that of W3 alone:\n%s", got, text)
	}
	picture, err := os.ReadFile(filepath.Join(dir, plotFolder, "W3.svg"))
	must.Succeed(t, err)
	for _, want := range []string{"<svg", ">4000<", ">100<", ">services<", ">proxies<", ">CPU a change, ms<", ">p99, ms<", ">istiod-lite<",
		">istiod, tuned<"} {
		if !strings.Contains(string(picture), want) {
			t.Errorf("no %s in the picture", want)
		}
	}
}

// TestGrowth: of growth only the points on its two lines are measured.
func TestGrowth(t *testing.T) {
	b := &bench{options: options{growth: true, services: []int{250, 1000}, proxies: []int{100, 300}}}
	got := ""
	for _, s := range b.services {
		for _, p := range b.options.proxies {
			if b.wanted(s, p) {
				got += fmt.Sprint(s, "x", p, " ")
			}
		}
	}
	if want := "250x300 1000x100 1000x300 "; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

// TestFiguresThatAreNotComparable: what cannot stand beside figures that were measured in full is a trial.
func TestFiguresThatAreNotComparable(t *testing.T) {
	t.Setenv("MESH", "")
	for _, c := range []struct {
		workloads []string
		length    time.Duration
		given     string
		want      string
	}{
		{[]string{"W1", "W3", "W4"}, 0, "rounds", ""},
		{[]string{"W1", "W3", "W10"}, time.Minute, "length", ""},
		{[]string{"W3", "W4"}, time.Minute, "length", "W4 takes 20s"},
		{[]string{"W1", "W2a"}, time.Second, "length", ""},
		{[]string{"W1"}, 0, "only", "-only is given"},
		{[]string{"W8"}, 0, "idle", "-idle is given"},
	} {
		all, err := pick(c.workloads)
		must.Succeed(t, err)
		if got := (&options{workloads: all, length: c.length}).trial(map[string]bool{c.given: true}); got != c.want {
			t.Errorf("%v for %s with -%s: got %q, want %q", c.workloads, c.length, c.given, got, c.want)
		}
	}
	t.Setenv("MESH", "mesh")
	if got := (&options{}).trial(nil); got == "" {
		t.Error("another limit is no trial")
	}
}

// TestUnknownContender: a contender that does not exist, and a limit without anything to copy, are refused, as are
// programs that are none.
func TestUnknownContender(t *testing.T) {
	for _, only := range []string{"istiod", "lite,", "lite,all", "limit", "limit,limit-vhds"} {
		if got, err := choose(options{only: only}); err == nil {
			t.Errorf("%q: got %v, want an error", only, got)
		}
	}
	for _, path := range []string{t.TempDir(), filepath.Join(t.TempDir(), "none")} {
		t.Setenv("PILOT_DISCOVERY", path)
		if _, err := findAll(); err == nil || !strings.Contains(err.Error(), "PILOT_DISCOVERY of the environment") {
			t.Errorf("%s: got %v", path, err)
		}
	}
	if got := istiodVersion(os.Args[0]); got != "of unknown version" {
		t.Errorf("this test is istiod %s", got)
	}
}

// TestFindLine: a line is found again.
func TestFindLine(t *testing.T) {
	if base, each := line([]float64{0, 250, 500, 1000}, []float64{7, 507, 1007, 2007}); math.Abs(base-7) > 1e-9 || math.Abs(each-2) > 1e-9 {
		t.Errorf("got %v + %v n, want 7 + 2 n", base, each)
	}
}
