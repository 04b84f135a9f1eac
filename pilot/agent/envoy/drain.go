package envoy

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
)

// adminTimeout bounds a call of the admin API.
const adminTimeout = 5 * time.Second

// Drain makes Envoy refuse new work while it continues to serve the application: its listeners ask clients to close
// connections. A sidecar drains only its inbound listeners. They stay open until Envoy is ended. Drain returns when
// the drain has begun. It logs failures, and does nothing if Envoy is already draining.
func (p *Process) Drain(ctx context.Context) { p.drain(ctx, "&skip_exit") }

// drain starts a drain. parameters are appended to the query of the request. Without skip_exit Envoy closes its
// listeners after the drain time.
func (p *Process) drain(ctx context.Context, parameters string) {
	select {
	case p.drainLock <- struct{}{}:
		defer func() { <-p.drainLock }()
	case <-ctx.Done():
		return
	}
	if p.draining {
		return
	}
	if !p.o.Gateway {
		parameters = "&inboundonly" + parameters
	}
	ctx, cancel := context.WithTimeout(ctx, adminTimeout)
	defer cancel()
	p.o.Log.Info("draining Envoy")
	resp, err := p.admin(ctx, http.MethodPost, "/drain_listeners?graceful"+parameters)
	if err != nil {
		p.o.Log.Warn("failed to drain Envoy", "err", err)
		return
	}
	_ = resp.Body.Close()
	p.draining = true
}

// admin calls the admin API. The caller must close the body.
func (p *Process) admin(ctx context.Context, method, path string) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, method, "http://"+p.o.Admin+path, nil)
	if err != nil {
		return nil, fmt.Errorf("Envoy's admin API: %w", err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, fmt.Errorf("Envoy's admin API: %w", err)
	}
	if resp.StatusCode != http.StatusOK {
		_ = resp.Body.Close()
		return nil, fmt.Errorf("Envoy's admin API: %s %s: %s", method, path, resp.Status)
	}
	return resp, nil
}

// connections returns the number of connections to Envoy's listeners.
func (p *Process) connections(ctx context.Context) (int, error) {
	ctx, cancel := context.WithTimeout(ctx, adminTimeout)
	defer cancel()
	resp, err := p.admin(ctx, http.MethodGet, "/stats?usedonly&filter=downstream_cx_active$")
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	return p.count(bufio.NewScanner(resp.Body))
}

// count sums up the statistics listener.ADDRESS_PORT.downstream_cx_active. It skips ignored ports, Envoy's internal
// listeners and the admin API. The admin API has at least one connection, so it is an error if its statistic is
// missing.
func (p *Process) count(lines *bufio.Scanner) (int, error) {
	total, found := 0, false
	for lines.Scan() {
		name, value, _ := strings.Cut(lines.Text(), ": ")
		address, ok := strings.CutPrefix(strings.TrimSuffix(name, ".downstream_cx_active"), "listener.")
		found = found || ok && address == "admin"
		if !ok || address == "admin" || strings.HasPrefix(address, "admin.") || strings.HasPrefix(address, "envoy_internal_") ||
			strings.Contains(address, ".worker_") || p.ignored(address) {
			continue
		}
		n, err := strconv.Atoi(value)
		if err != nil {
			return 0, fmt.Errorf("Envoy's admin API: %q is not a number of connections", value)
		}
		total += n
	}
	if err := lines.Err(); err != nil || found {
		return total, err
	}
	return 0, errors.New("Envoy's admin API: the statistic downstream_cx_active is missing")
}

func (p *Process) ignored(address string) bool {
	return slices.ContainsFunc(p.o.Ignored, func(port uint16) bool { return strings.HasSuffix(address, "_"+strconv.Itoa(int(port))) })
}
