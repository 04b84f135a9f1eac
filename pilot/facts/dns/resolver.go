package dns

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"time"

	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/api/limits"
	"github.com/istiod-lite/istiod-lite/api/lists"
	"github.com/istiod-lite/istiod-lite/pilot/config"
	"github.com/istiod-lite/istiod-lite/pilot/facts"
	"github.com/istiod-lite/istiod-lite/pilot/facts/poll"
)

// Options of a Resolver.
type Options struct {
	Handler config.Handler // gets the answers that differ from the last ones; called from several goroutines
	Logger  *slog.Logger
	Lookup  func(ctx context.Context, network, host string) ([]netip.Addr, error) // nil is the machine's own resolver
	Every   time.Duration                                                         // how often a name is asked for; 0 is 30 s
	Longest time.Duration                                                         // what Every doubles up to as a name goes on failing; 0 is 5 min
	Timeout time.Duration                                                         // of one question; 0 is 2 s
	Limits  limits.Limits                                                         // zero is the default
}

// Resolver is the facts.Provider of the addresses of host names.
type Resolver struct{ *poll.Poller[[]string] }

var _ facts.Provider = Resolver{}

// New makes a Resolver that wants nothing.
func New(o Options) Resolver {
	if o.Lookup == nil {
		o.Lookup = net.DefaultResolver.LookupNetIP
	}
	every := cmp.Or(o.Every, 30*time.Second)
	return Resolver{poll.New(poll.Options[[]string]{
		Kind: kinds.HostAddresses, Handler: o.Handler, Logger: o.Logger, Limits: o.Limits, Every: every, Retry: every, Longest: cmp.Or(o.Longest, 5*time.Minute),
		Ask: func(ctx context.Context, host string) ([]string, error) {
			ctx, cancel := context.WithTimeout(ctx, cmp.Or(o.Timeout, 2*time.Second))
			defer cancel()
			found, err := o.Lookup(ctx, "ip", host)
			if err != nil {
				return nil, err
			}
			if len(found) == 0 {
				return nil, errors.New("it has no address")
			}
			addresses := lists.Map(found, func(a netip.Addr) string { return a.Unmap().WithZone("").String() })
			slices.Sort(addresses)
			return slices.Compact(addresses), nil
		},
	})}
}
