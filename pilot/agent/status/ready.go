package status

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync/atomic"
	"time"
)

// readiness is the state of the proxy's readiness.
type readiness struct {
	url       string // URL of Envoy's statistics; empty without an Envoy
	dns       Names  // nil without a DNS proxy
	client    *http.Client
	everReady atomic.Bool // the proxy was ready once
	draining  atomic.Bool
}

// Envoy's statistics that show whether it accepts traffic.
const (
	statState   = "server.state"
	statWorkers = "listener_manager.workers_started"
	statCDS     = "cluster_manager.cds.update_"
	statLDS     = "listener_manager.lds.update_"
)

// Values of server.state.
const (
	stateLive     = 0
	stateDraining = 1
)

const (
	statsTimeout = time.Second
	maxStats     = 64 << 10 // bytes
)

func newReadiness(o Options) *readiness {
	r := &readiness{dns: o.Names, client: &http.Client{Timeout: statsTimeout,
		Transport: &http.Transport{DisableCompression: true, MaxIdleConns: 1, IdleConnTimeout: idle}}}
	if o.EnvoyAdmin != "" {
		filter := `^(server\.state|listener_manager\.workers_started|(cluster_manager\.cds|listener_manager\.lds)\.update_(success|rejected))$`
		r.url = "http://" + o.EnvoyAdmin + "/stats?usedonly&filter=" + url.QueryEscape(filter)
	}
	return r
}

func (r *readiness) drain() { r.draining.Store(true) }

// check returns nil if the proxy accepts traffic, and otherwise an error that says what is missing. A proxy that was
// ready once stays ready until it drains.
func (r *readiness) check(ctx context.Context) error {
	if r.draining.Load() {
		return errors.New("the proxy is draining")
	}
	if r.url == "" {
		return r.checkNames()
	}
	stats, err := r.stats(ctx)
	switch {
	case r.everReady.Load():
		if err == nil && stats[statState] == stateDraining {
			return errors.New("the proxy is draining")
		}
		return nil
	case err != nil:
		return fmt.Errorf("the proxy does not respond yet: %w", err)
	}
	if err := checkStats(stats); err != nil {
		return err
	}
	if err := r.checkNames(); err != nil {
		return err
	}
	r.everReady.Store(true)
	return nil
}

func (r *readiness) checkNames() error {
	if r.dns != nil && !r.dns.Ready() {
		return errors.New("the control plane has not sent the DNS name table")
	}
	return nil
}

// checkStats returns nil if Envoy's statistics show that it accepts traffic. Envoy omits statistics that were never
// written.
func checkStats(stats map[string]uint64) error {
	success, rejected := func(t string) uint64 { return stats[t+"success"] }, func(t string) uint64 { return stats[t+"rejected"] }
	if success(statCDS) == 0 || success(statLDS) == 0 {
		what := "the control plane has not sent configuration (is it running?)"
		if rejected(statCDS)+rejected(statLDS) > 0 {
			what = "the proxy rejected its configuration"
		}
		return fmt.Errorf("%s: clusters: %d updates, %d rejected; listeners: %d updates, %d rejected", what,
			success(statCDS), rejected(statCDS), success(statLDS), rejected(statLDS))
	}
	state, known := stats[statState]
	if !known || state != stateLive {
		return fmt.Errorf("the proxy is not live: server.state is %d", state)
	}
	if stats[statWorkers] != 1 {
		return errors.New("the proxy has not started its workers")
	}
	return nil
}

// stats returns Envoy's statistics.
func (r *readiness) stats(ctx context.Context) (map[string]uint64, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, r.url, nil)
	if err != nil {
		return nil, err
	}
	resp, err := r.client.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("HTTP %d of %s", resp.StatusCode, req.URL.Path)
	}
	stats := map[string]uint64{}
	lines := bufio.NewScanner(io.LimitReader(resp.Body, maxStats))
	for lines.Scan() {
		name, value, _ := strings.Cut(lines.Text(), ": ")
		if n, err := strconv.ParseUint(value, 10, 64); err == nil {
			stats[name] = n
		}
	}
	return stats, lines.Err()
}
