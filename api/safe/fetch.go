package safe

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"syscall"
	"time"
)

// FetchOptions are the options of a Fetcher.
type FetchOptions struct {
	Size      int64          // maximum size of a response in bytes
	Timeout   time.Duration  // from the request to the last byte
	Redirects int            // redirects that are followed
	Allow     []netip.Prefix // allowed addresses, even of this host, its links or a metadata service
	Block     []netip.Prefix // blocked addresses, except those in Allow
	// Transport has the TLS settings. It defaults to http.DefaultTransport. Its dialer and its proxy are not used.
	Transport *http.Transport
	// Proxy returns the operator's proxy for a URL, or nil. Optional.
	Proxy func(*url.URL) (*url.URL, error)
}

// Fetcher fetches URLs that users wrote. It refuses addresses of this host, of its links and of cloud metadata
// services, and blocked ones, after resolving a name and before connecting. A proxy of the operator may have any
// address. The proxy is not asked for such an address, nor for a name that resolves to one on this host.
type Fetcher struct {
	client *http.Client
	size   int64
}

// NewFetcher returns a Fetcher.
func NewFetcher(o FetchOptions) *Fetcher {
	t := o.Transport
	if t == nil {
		t, _ = http.DefaultTransport.(*http.Transport)
	}
	g := &guard{o: o, direct: t.Clone(), proxied: t.Clone()}
	g.direct.Proxy = nil
	g.direct.DialContext = (&net.Dialer{
		Timeout: o.Timeout,
		Control: func(_, address string, _ syscall.RawConn) error {
			to, err := netip.ParseAddrPort(address)
			if err != nil {
				return err
			}
			return g.check(to.Addr())
		},
	}).DialContext
	g.proxied.Proxy = func(r *http.Request) (*url.URL, error) { return o.Proxy(r.URL) }
	g.proxied.DialContext = (&net.Dialer{Timeout: o.Timeout}).DialContext
	return &Fetcher{size: o.Size, client: &http.Client{
		Transport: g, Timeout: o.Timeout,
		CheckRedirect: func(r *http.Request, via []*http.Request) error {
			if len(via) > o.Redirects {
				return fmt.Errorf("more than %d redirects", o.Redirects)
			}
			if via[0].URL.Scheme == "https" && r.URL.Scheme != "https" {
				return errors.New("a redirect from https to http")
			}
			return checkURL(r.URL)
		},
	}}
}

// guard makes the allowed requests, through a proxy if there is one for the URL.
type guard struct {
	o               FetchOptions
	direct, proxied *http.Transport
}

// RoundTrip implements http.RoundTripper.
func (g *guard) RoundTrip(r *http.Request) (*http.Response, error) {
	if g.o.Proxy != nil {
		proxy, err := g.o.Proxy(r.URL)
		if err != nil {
			return nil, errors.New("the proxy of the environment has no URL") // the proxy's URL may contain a password
		}
		if proxy != nil {
			if err := g.checkHost(r.Context(), r.URL.Hostname()); err != nil {
				return nil, err
			}
			return g.proxied.RoundTrip(r)
		}
	}
	return g.direct.RoundTrip(r)
}

// CloseIdleConnections closes connections that are not in use.
func (g *guard) CloseIdleConnections() {
	g.direct.CloseIdleConnections()
	g.proxied.CloseIdleConnections()
}

// checkHost returns an error if a proxy must not be asked for a host. The proxy resolves a name that this host does not
// resolve, unless addresses are blocked, since the name might have one of them.
func (g *guard) checkHost(ctx context.Context, host string) error {
	list := []netip.Addr{}
	if a, err := netip.ParseAddr(host); err == nil {
		list = append(list, a)
	} else if list, err = net.DefaultResolver.LookupNetIP(ctx, "ip", host); err != nil && len(g.o.Block) > 0 {
		return fmt.Errorf("the host may not be asked for by a proxy: addresses are blocked, and its own are not known: %w", err)
	}
	for _, a := range list {
		if err := g.check(a); err != nil {
			return err
		}
	}
	return nil
}

// check returns an error unless an address may be fetched from.
func (g *guard) check(a netip.Addr) error {
	a = a.WithZone("").Unmap()
	within := func(p netip.Prefix) bool { return p.Contains(a) }
	switch {
	case slices.ContainsFunc(g.o.Allow, within):
		return nil
	case !public(a) || own(a):
		return fmt.Errorf("%s may not be fetched from: it is an address of this host, of its links or of no host", a)
	case slices.ContainsFunc(g.o.Block, within):
		return fmt.Errorf("%s may not be fetched from: it is blocked", a)
	}
	return nil
}

// public reports whether an address can belong to another host. Private networks are included, because services are
// there.
func public(a netip.Addr) bool {
	if nat64 := netip.MustParsePrefix("64:ff9b::/96"); nat64.Contains(a) {
		b := a.As16()
		a = netip.AddrFrom4([4]byte(b[12:]))
	}
	return !(a.IsLoopback() || a.IsUnspecified() || a.IsLinkLocalUnicast() || a.IsMulticast() || a.IsInterfaceLocalMulticast() ||
		a == netip.AddrFrom4([4]byte{255, 255, 255, 255}) || slices.Contains(metadataServices(), a))
}

// metadataServices returns the addresses outside of link-local networks at which clouds give their machines
// credentials.
func metadataServices() []netip.Addr {
	return []netip.Addr{
		netip.MustParseAddr("fd00:ec2::254"),   // AWS
		netip.MustParseAddr("fd20:ce::254"),    // Google
		netip.MustParseAddr("168.63.129.16"),   // Azure
		netip.MustParseAddr("100.100.100.200"), // Alibaba
		netip.MustParseAddr("192.0.0.192"),     // Oracle
	}
}

// own reports whether an address belongs to this host, whose ports include this server's own.
func own(a netip.Addr) bool {
	addresses, err := net.InterfaceAddrs()
	if err != nil {
		return true
	}
	return slices.ContainsFunc(addresses, func(n net.Addr) bool {
		p, err := netip.ParsePrefix(n.String())
		return err == nil && p.Addr().Unmap() == a
	})
}

func checkURL(u *url.URL) error {
	if u.Scheme != "https" && u.Scheme != "http" || u.Host == "" || u.User != nil {
		return errors.New("a URL that is fetched begins with https:// or http:// and a host, and has no user")
	}
	return nil
}

// Do sends a request, whose URL is checked as in Get. The caller bounds and closes the body. An error never contains
// the URL.
func (f *Fetcher) Do(r *http.Request) (*http.Response, error) {
	if err := checkURL(r.URL); err != nil {
		return nil, err
	}
	a, err := f.client.Do(r)
	if at := (&url.Error{}); errors.As(err, &at) { // it names the URL, which may come from a redirect
		err = at.Err
	}
	return a, err
}

// Get returns the body of a URL. Any status but 200 is an error. An error never contains the URL, which the caller
// knows, nor a part of a response, which the reader of the error may not be allowed to see.
func (f *Fetcher) Get(ctx context.Context, text string) ([]byte, error) {
	u, err := url.Parse(text)
	if err != nil {
		return nil, errors.New("no URL")
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), nil)
	if err != nil {
		return nil, err
	}
	a, err := f.Do(r)
	if err != nil {
		return nil, err
	}
	defer func() { _ = a.Body.Close() }()
	if a.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("it answers with status %d", a.StatusCode)
	}
	body, err := io.ReadAll(io.LimitReader(a.Body, f.size+1))
	if err != nil {
		return nil, err
	}
	if int64(len(body)) > f.size {
		return nil, fmt.Errorf("it answers with more than %d bytes", f.size)
	}
	return body, nil
}
