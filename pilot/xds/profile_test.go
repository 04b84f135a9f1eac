package xds

import (
	"net/netip"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/istiod-lite/istiod-lite/api/identity"
	"github.com/istiod-lite/istiod-lite/api/node"
	"github.com/istiod-lite/istiod-lite/pilot/authorize"
)

// TestObjectsAreServedToAPIClientsOnly: objects are served only to the addresses that the options name, and by default
// to this host.
func TestObjectsAreServedToAPIClientsOnly(t *testing.T) {
	reader, proxy := &node.Proxy{Generator: "api"}, &node.Proxy{}
	for _, c := range []struct {
		clients []netip.Prefix
		remote  string
		want    codes.Code
	}{
		{nil, "127.0.0.1:5", codes.OK},
		{nil, "[::1]:5", codes.OK},
		{nil, "[::ffff:127.0.0.1]:5", codes.OK},
		{nil, "10.0.0.1:5", codes.PermissionDenied},
		{nil, "", codes.PermissionDenied},
		{nil, "@", codes.PermissionDenied},
		{[]netip.Prefix{}, "127.0.0.1:5", codes.PermissionDenied},
		{[]netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}, "10.2.3.4:5", codes.OK},
		{[]netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}, "127.0.0.1:5", codes.PermissionDenied},
		{[]netip.Prefix{netip.MustParsePrefix("fe80::/10")}, "[fe80::1%eth0]:5", codes.OK},
	} {
		s := New(Options{Authorizer: authorize.New(authorize.Options{Readers: c.clients})})
		address, _ := netip.ParseAddrPort(c.remote)
		peer := identity.Peer{Address: address}
		if err := s.authorize(s.profileOf(reader, true), peer, reader); status.Code(err) != c.want {
			t.Errorf("%v, %s: %v", c.clients, c.remote, err)
		}
		if err := s.authorize(s.profileOf(proxy, true), peer, proxy); err != nil {
			t.Errorf("a proxy at %s: %v", c.remote, err)
		}
	}
}
