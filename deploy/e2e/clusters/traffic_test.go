package clusters

import (
	"context"
	"fmt"
	"math"
	"net/http"
	"testing"
	"time"

	"github.com/istiod-lite/istiod-lite/deploy/e2e/echo"
	"github.com/istiod-lite/istiod-lite/deploy/e2e/load"
	"github.com/istiod-lite/istiod-lite/deploy/e2e/suite"
	"github.com/istiod-lite/istiod-lite/deploy/e2e/world"
)

const (
	// rate is in requests a second, for each of the loads.
	rate = 100
	// quiet is how long nobody must have heard of a server to count as without requests.
	quiet = time.Second
)

// Where the services are.
const (
	echoAddr  = "10.96.0.10:80"
	otherAddr = "10.96.0.20:80" // of echo, in the second cluster
	splitAddr = "10.96.0.14:80"
)

// traffic is steady load from some pods on one service.
type traffic []*load.Run

// send gives the means to send requests to a service from a pod, on connections that are kept as programs keep them.
func send(from *world.Running, addr, host string) func(ctx context.Context) (string, error) {
	client := &http.Client{Transport: &http.Transport{DialContext: from.Place.DialContext, MaxIdleConnsPerHost: 32}}
	return func(ctx context.Context) (string, error) {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+addr+"/", nil)
		if err != nil {
			return "", err
		}
		req.Host = host
		resp, err := client.Do(req)
		if err != nil {
			return "", err
		}
		a, err := echo.Decode(resp)
		return a.Name, err
	}
}

// begin sends from each of the pods until the test ends; one request that fails fails the test.
func begin(t *testing.T, addr, host string, from ...*world.Running) traffic {
	t.Helper()
	var tr traffic
	for _, pod := range from {
		r := load.Start(context.WithoutCancel(t.Context()), load.Options{Rate: rate, Timeout: 10 * time.Second, Send: send(pod, addr, host)})
		t.Cleanup(func() {
			report := r.Stop()
			t.Logf("from %s: %s %v", pod.Node.Name, report, report.From)
			if report.Failed > 0 || report.Answered == 0 {
				t.Error("requests failed")
			}
		})
		tr = append(tr, r)
	}
	return tr
}

// answers waits until the server answers all loads.
func (tr traffic) answers(t *testing.T, server string, limit time.Duration) {
	t.Helper()
	before := make([]int, len(tr))
	for i, r := range tr {
		before[i] = r.Report().From[server]
	}
	suite.Eventually(t, server+" answers", limit, func() bool {
		for i, r := range tr {
			if r.Report().From[server] < before[i]+5 {
				return false
			}
		}
		return true
	})
}

// silent waits until the server has answered no load for a while.
func (tr traffic) silent(t *testing.T, server string, limit time.Duration) {
	t.Helper()
	last, since := tr.sum(server), time.Now()
	suite.Eventually(t, fmt.Sprintf("%s is sent nothing for %s", server, quiet), limit, func() bool {
		if now := tr.sum(server); now != last {
			last, since = now, time.Now()
		}
		return time.Since(since) >= quiet
	})
}

// failed tells how many requests have failed so far, and why.
func (tr traffic) failed() (n int, why string) {
	for i, r := range tr {
		report := r.Report()
		n += report.Failed
		why += fmt.Sprintf("load %d: %s\n", i, report)
	}
	return n, why
}

// sum is the number of answers of the server so far.
func (tr traffic) sum(server string) int {
	n := 0
	for _, r := range tr {
		n += r.Report().From[server]
	}
	return n
}

// share waits until the server answers so much of the requests, as far as chance lets that be told of n of them.
func (tr traffic) share(t *testing.T, server string, want float64) {
	t.Helper()
	const n = 400
	total := func() (answered, from int) {
		for _, r := range tr {
			report := r.Report()
			answered, from = answered+report.Answered, from+report.From[server]
		}
		return answered, from
	}
	// Choices are independent: five standard deviations of the binomial distribution are left once in two million times.
	bound := 5 * math.Sqrt(want*(1-want)/n)
	answered, from := total()
	suite.Eventually(t, fmt.Sprintf("%s answers %.0f %% +- %.0f %%", server, 100*want, 100*bound), soon, func() bool {
		a, f := total()
		if a-answered < n {
			return false
		}
		got := float64(f-from) / float64(a-answered)
		answered, from = a, f
		return math.Abs(got-want) <= bound
	})
}
