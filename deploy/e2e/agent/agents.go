package agent

import (
	"context"
	"sync"

	"github.com/istiod-lite/istiod-lite/deploy/e2e/sds"
)

// Options of Agents.
type Options struct {
	Host   string // where relays listen
	Issuer sds.Issuer
	To     string // the secure port of the control plane
}

// Agents are relays to one control plane, one for each account. Safe for concurrent use.
type Agents struct {
	o Options

	mu     sync.Mutex
	relays map[[2]string]*Relay // by namespace and name
}

// New returns Agents without relays.
func New(o Options) *Agents { return &Agents{o: o, relays: map[[2]string]*Relay{}} }

// Address returns where the proxies of an account connect.
func (a *Agents) Address(ctx context.Context, namespace, account string) (string, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	key := [2]string{namespace, account}
	if r := a.relays[key]; r != nil {
		return r.Address, nil
	}
	r, err := Connect(ctx, a.o.Host, a.o.Issuer, a.o.To, namespace, account)
	if err != nil {
		return "", err
	}
	a.relays[key] = r
	return r.Address, nil
}

// Stop ends all relays.
func (a *Agents) Stop() {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, r := range a.relays {
		r.Stop()
	}
}
