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

// Options configure a Resolver.
type Options struct {
	// Handler gets the answers that have changed. It is called from several goroutines.
	Handler config.Handler
	Logger  *slog.Logger
	// Lookup resolves a host name. The default is the machine's resolver.
	Lookup func(ctx context.Context, network, host string) ([]netip.Addr, error)
	// Interval is the time between two lookups of a name. The default is 30 s.
	Interval time.Duration
	// MaxBackoff bounds the time between two lookups while a name fails; it begins with Interval. The default is 5 min.
	MaxBackoff time.Duration
	// Timeout bounds one lookup. The default is 2 s.
	Timeout time.Duration
	Limits  limits.Limits // the zero value means limits.Default
}

// Resolver is the facts.Provider of the addresses of host names.
type Resolver struct{ *poll.Poller[[]string] }

var _ facts.Provider = Resolver{}

// New returns a Resolver that resolves nothing yet.
func New(o Options) Resolver {
	if o.Lookup == nil {
		o.Lookup = net.DefaultResolver.LookupNetIP
	}
	interval := cmp.Or(o.Interval, 30*time.Second)
	return Resolver{poll.New(poll.Options[[]string]{
		Kind: kinds.HostAddresses, Handler: o.Handler, Logger: o.Logger, Limits: o.Limits,
		Interval: interval, MinBackoff: interval, MaxBackoff: cmp.Or(o.MaxBackoff, 5*time.Minute),
		Ask: func(ctx context.Context, host string) ([]string, error) {
			ctx, cancel := context.WithTimeout(ctx, cmp.Or(o.Timeout, 2*time.Second))
			defer cancel()
			found, err := o.Lookup(ctx, "ip", host)
			if err != nil {
				return nil, err
			}
			if len(found) == 0 {
				return nil, errors.New("the name has no address")
			}
			addresses := lists.Map(found, func(a netip.Addr) string { return a.Unmap().WithZone("").String() })
			slices.Sort(addresses)
			return slices.Compact(addresses), nil
		},
	})}
}
