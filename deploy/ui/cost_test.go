//go:build browser

package ui

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"github.com/istiod-lite/istiod-lite/deploy/must"
)

// TestCost prints what the page costs the server: CPU time with and without a viewer, with 1000 connected proxies and
// ten changes a second, and the growth of memory. It checks nothing, because the figures depend on the load of the
// machine.
func TestCost(t *testing.T) {
	if *measure == 0 {
		t.Skip("it runs with -measure DURATION")
	}
	s := start(t, shop())
	s.proxies(1000)
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			case <-time.After(100 * time.Millisecond):
				if *contents > 0 {
					i %= *contents
				}
				s.Write("routes.yaml", routes(fmt.Sprint("v", i)))
			}
		}
	}()
	defer func() { close(stop); <-stopped }()
	var page struct{ Newest int }
	during := func(what, view string) {
		if view != "" {
			ctx, cancel := chromedp.NewContext(browser(t))
			defer cancel()
			do(t, ctx, chromedp.Navigate("http://"+s.Monitoring+"/ui/#/"+view))
			time.Sleep(3 * time.Second)
		}
		s.Read("/debug/pushes?limit=1", &page)
		pushes, cpu, memory, began := page.Newest, s.cpu(), s.memory(), time.Now()
		half := 0
		for time.Since(began) < *measure {
			time.Sleep(*measure / 20)
			if half == 0 && time.Since(began) > *measure/2 {
				half = s.memory()
			}
		}
		took := time.Since(began)
		s.Read("/debug/pushes?limit=1", &page)
		t.Logf("%-28s %5.1f %% of a core, %.1f pushes a second, RSS %.1f, %.1f, %.1f MiB", what, 100*(s.cpu()-cpu).Seconds()/took.Seconds(),
			float64(page.Newest-pushes)/took.Seconds(), float64(memory)/1024, float64(half)/1024, float64(s.memory())/1024)
	}
	for i := range *warm { // fill the caches to their bounds
		during(fmt.Sprint("warming up ", i), "")
	}
	during("without the page", "")
	for _, view := range strings.Split(*views, ",") {
		during("with the page at "+view, view)
	}
	during("without the page again", "")
}

// cpu returns the CPU time that the server has used.
func (s *server) cpu() time.Duration {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", s.PID()))
	must.Succeed(s.t, err)
	f := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+2:]))
	user, _ := strconv.Atoi(f[11])
	system, _ := strconv.Atoi(f[12])
	return time.Duration(user+system) * 10 * time.Millisecond
}

// memory returns the resident memory of the server in KiB.
func (s *server) memory() int {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", s.PID()))
	must.Succeed(s.t, err)
	for line := range strings.SplitSeq(string(text), "\n") {
		if rest, ok := strings.CutPrefix(line, "VmRSS:"); ok {
			n, _ := strconv.Atoi(strings.Fields(rest)[0])
			return n
		}
	}
	return 0
}
