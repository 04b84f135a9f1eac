package xds

import (
	"net/netip"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/istiod-lite/istiod-lite/api/node"
	"github.com/istiod-lite/istiod-lite/pilot/xds/session"
)

// profile is what kind of client a stream has. It is chosen at the stream's first request, and all in which kinds of
// clients differ is here.
type profile struct {
	session.Profile
	name     string // in the log
	urgent   bool   // it goes before others
	workload bool   // a workload runs beside it, and it is sent nothing before all sources have synced
	warms    bool   // it warms its clusters before it asks for listeners
	local    bool   // it is served only at the addresses of Options.APIClients
}

// apiGenerator is the GENERATOR in the metadata of a node that wants the objects of configuration themselves, not what
// a proxy makes of them: another control plane, or a tool.
const apiGenerator = "api"

// IsAPIClient reports whether a client is sent objects of configuration, of every type that it asks for.
func IsAPIClient(p *node.Proxy) bool { return p != nil && p.Generator == apiGenerator }

// profileOf returns the profile of a client.
func (s *Server) profileOf(p *node.Proxy, delta bool) *profile {
	if IsAPIClient(p) {
		return &profile{Profile: session.Profile{Whole: true}, name: "reader of configuration", local: true}
	}
	gateway := p.Type == node.Router
	return &profile{
		Profile: session.Profile{
			Divided: delta && !s.noHosts && p.Capabilities.Has(node.VHDS),
			Grouped: !gateway, // gateways are few, and other proxies depend on them
		},
		name:     "proxy",
		urgent:   gateway,
		workload: true,
		warms:    p.Envoy != [3]uint32{},
	}
}

// healthType is that of reports of health, which are not answered.
const healthType = "type.googleapis.com/istio.v1.HealthInformation"

// debugType begins the types by which tools such as istioctl ask for debug pages.
const debugType = "istio.io/debug"

// refuseDebug returns an error for a tool that would wait for a debug page in vain. A proxy may ask for any other type
// that nobody serves: it gets no answer, and all else.
func refuseDebug(typeURL string) error {
	if !strings.HasPrefix(typeURL, debugType) {
		return nil
	}
	return status.Errorf(codes.Unimplemented, "%s is not served over xDS yet: on the control plane's host, "+
		"pilot-discovery proxy-status and pilot-discovery request GET /debug/list answer", typeURL)
}

// Loopback returns every address of this host's own.
func Loopback() []netip.Prefix {
	return []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8"), netip.MustParsePrefix("::1/128")}
}

// admit returns an error to a client that is not served at its address. The configuration of the whole mesh is no
// business of a proxy's.
func (s *Server) admit(p *profile, remote string) error {
	if !p.local {
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
	return status.Errorf(codes.PermissionDenied,
		"objects of configuration are not served to %s: the server has to be told to, by --apiClients", remote)
}
