package xds

import (
	"net/netip"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/istiod-lite/istiod-lite/api/node"
)

// objectGenerator is the GENERATOR in the metadata of a node that wants the objects of configuration themselves, not
// what a proxy makes of them.
const objectGenerator = "api"

// OfObjects reports whether a client is sent objects of configuration, of every type that it asks for.
func OfObjects(p *node.Proxy) bool { return p != nil && p.Generator == objectGenerator }

func (s *session) ofObjects() bool { return OfObjects(s.proxy) }

// Loopback is every address of this host's own.
func Loopback() []netip.Prefix {
	return []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8"), netip.MustParsePrefix("::1/128")}
}

// admit returns an error to a client that asks for objects and may not read them. The configuration of the whole mesh
// is no business of a proxy's.
func (s *Server) admit(p *node.Proxy, remote string) error {
	if !OfObjects(p) {
		return nil
	}
	peer, err := netip.ParseAddrPort(remote)
	if err == nil {
		for _, allowed := range s.apiClients {
			if allowed.Contains(peer.Addr().Unmap().WithZone("")) {
				return nil
			}
		}
	}
	return status.Errorf(codes.PermissionDenied, "objects of configuration are not served to %s: the server has to be told to, by --apiClients", remote)
}
