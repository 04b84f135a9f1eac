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
	Size      int64           // bytes of a response
	Timeout   time.Duration   // from the request to the last byte
	Redirects int             // that are followed
	Allow     []netip.Prefix  // addresses that may be reached although they are this host's, its links' or a metadata service's
	Block     []netip.Prefix  // addresses that may not be reached; Allow counts first
	Transport *http.Transport // what else of TLS and proxies; nil: http.DefaultTransport's. Its dialer does not count
}

// Fetcher fetches URLs that users wrote. It connects to no address of this host, of its links or of a cloud's metadata
// service, nor to one that is blocked, whatever a name resolves to when it is dialled.
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
	t = t.Clone()
	t.Proxy = nil // Control would check the address of the proxy, not that of the URL
	t.DialContext = (&net.Dialer{
		Timeout: o.Timeout,
		Control: func(_, address string, _ syscall.RawConn) error {
			to, err := netip.ParseAddrPort(address)
			if err != nil {
				return err
			}
			a := to.Addr().WithZone("").Unmap()
			within := func(p netip.Prefix) bool { return p.Contains(a) }
			switch {
			case slices.ContainsFunc(o.Allow, within):
				return nil
			case !public(a) || own(a):
				return fmt.Errorf("%s may not be fetched from: it is an address of this host, of its links or of no host", a)
			case slices.ContainsFunc(o.Block, within):
				return fmt.Errorf("%s may not be fetched from: it is blocked", a)
			}
			return nil
		},
	}).DialContext
	return &Fetcher{size: o.Size, client: &http.Client{
		Transport: t, Timeout: o.Timeout,
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

// public reports whether an address can be another host's. Private networks count: that is where services are.
func public(a netip.Addr) bool {
	if nat64 := netip.MustParsePrefix("64:ff9b::/96"); nat64.Contains(a) {
		b := a.As16()
		a = netip.AddrFrom4([4]byte(b[12:]))
	}
	return !(a.IsLoopback() || a.IsUnspecified() || a.IsLinkLocalUnicast() || a.IsMulticast() || a.IsInterfaceLocalMulticast() ||
		a == netip.AddrFrom4([4]byte{255, 255, 255, 255}) || slices.Contains(metadataServices(), a))
}

// metadataServices returns the addresses at which clouds give their machines credentials, but for those of links.
func metadataServices() []netip.Addr {
	return []netip.Addr{
		netip.MustParseAddr("fd00:ec2::254"),   // AWS
		netip.MustParseAddr("fd20:ce::254"),    // Google
		netip.MustParseAddr("168.63.129.16"),   // Azure
		netip.MustParseAddr("100.100.100.200"), // Alibaba
		netip.MustParseAddr("192.0.0.192"),     // Oracle
	}
}

// own reports whether an address is one of this host's: its ports are this server's own.
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

// Do answers a request, whose URL is guarded as that of Get. The caller bounds and closes the body. An error has
// nothing of the URL.
func (f *Fetcher) Do(r *http.Request) (*http.Response, error) {
	if err := checkURL(r.URL); err != nil {
		return nil, err
	}
	a, err := f.client.Do(r)
	if at := (&url.Error{}); errors.As(err, &at) { // it names the URL, which may be where a redirect led
		err = at.Err
	}
	return a, err
}

// Get returns the body of a URL. Any status but 200 is an error. An error has nothing of the URL, which its caller
// knows, and nothing of a response: it could be one that its reader may not see.
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
