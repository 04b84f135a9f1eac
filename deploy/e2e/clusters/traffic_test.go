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

// rate is in requests a second, for each of the loads.
const rate = 100

// Where the services are.
const (
	echoAddr  = "10.96.0.10:80"
	otherAddr = "10.96.0.20:80" // of echo, in the second cluster
	splitAddr = "10.96.0.14:80"
)

// send returns the means to send requests to a service from a pod, on connections that are kept as programs keep them.
func send(from *world.Running, addr, host string) func(ctx context.Context) (string, error) {
	client := &http.Client{Transport: &http.Transport{DialContext: from.Location.DialContext, MaxIdleConnsPerHost: 32}}
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
func begin(t *testing.T, addr, host string, from ...*world.Running) load.Traffic {
	t.Helper()
	var senders []func(context.Context) (string, error)
	for _, pod := range from {
		senders = append(senders, send(pod, addr, host))
	}
	return load.Begin(t, load.Options{Rate: rate, Timeout: 10 * time.Second}, senders...)
}

// share waits until the server answers this share of n requests, within chance.
func share(t *testing.T, tr load.Traffic, server string, want float64) {
	t.Helper()
	const n = 400
	total := func() (answered, from int) {
		for _, r := range tr {
			report := r.Report()
			answered, from = answered+report.Answered, from+report.From[server]
		}
		return answered, from
	}
	// Choices are independent: five standard deviations of the binomial distribution are left once in two million
	// times.
	bound := 5 * math.Sqrt(want*(1-want)/n)
	answered, from := total()
	suite.Eventually(t, fmt.Sprintf("%s answers %.0f %% +- %.0f %%", server, 100*want, 100*bound), func() bool {
		a, f := total()
		if a-answered < n {
			return false
		}
		got := float64(f-from) / float64(a-answered)
		answered, from = a, f
		return math.Abs(got-want) <= bound
	})
}
