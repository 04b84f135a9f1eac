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

// Drain has Envoy refuse new work while it goes on to serve the application: its listeners ask clients to close, of a
// sidecar those for traffic from outside. They stay open until Envoy is ended. Drain returns once Envoy has begun. It
// logs what fails, and does nothing once Envoy drains.
func (p *Process) Drain(ctx context.Context) { p.drain(ctx, "&skip_exit") }

// drain asks Envoy to drain. Without skip_exit its listeners close after the time to drain.
func (p *Process) drain(ctx context.Context, how string) {
	select {
	case p.asking <- struct{}{}:
		defer func() { <-p.asking }()
	case <-ctx.Done():
		return
	}
	if p.drains {
		return
	}
	if !p.o.Gateway {
		how = "&inboundonly" + how
	}
	ctx, cancel := context.WithTimeout(ctx, adminTimeout)
	defer cancel()
	p.o.Log.Info("draining Envoy")
	resp, err := p.admin(ctx, http.MethodPost, "/drain_listeners?graceful"+how)
	if err != nil {
		p.o.Log.Warn("Envoy does not drain", "err", err)
		return
	}
	_ = resp.Body.Close()
	p.drains = true
}

// admin calls the admin API. The caller closes the body.
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

// connections returns how many clients are connected to Envoy's listeners.
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

// count adds up listener.ADDRESS_PORT.downstream_cx_active, but those of ports that do not count, of listeners inside
// of Envoy and of the admin API. That of the admin API is at least one; without it, the metrics do not say.
func (p *Process) count(lines *bufio.Scanner) (int, error) {
	total, said := 0, false
	for lines.Scan() {
		name, value, _ := strings.Cut(lines.Text(), ": ")
		address, ok := strings.CutPrefix(strings.TrimSuffix(name, ".downstream_cx_active"), "listener.")
		said = said || ok && address == "admin"
		if !ok || address == "admin" || strings.HasPrefix(address, "admin.") || strings.HasPrefix(address, "envoy_internal_") || strings.Contains(address, ".worker_") || p.ignored(address) {
			continue
		}
		n, err := strconv.Atoi(value)
		if err != nil {
			return 0, fmt.Errorf("Envoy's admin API: %q is no number of connections", value)
		}
		total += n
	}
	if err := lines.Err(); err != nil || said {
		return total, err
	}
	return 0, errors.New("Envoy's admin API: its metrics leave out downstream_cx_active")
}

func (p *Process) ignored(address string) bool {
	return slices.ContainsFunc(p.o.Ignored, func(port uint16) bool { return strings.HasSuffix(address, "_"+strconv.Itoa(int(port))) })
}
