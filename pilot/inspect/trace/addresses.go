package trace

import (
	"cmp"
	"net/netip"
	"slices"
	"strings"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	proxyprotocolv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/listener/proxy_protocol/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	headerv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/http/original_ip_detection/custom_header/v3"
	xffv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/http/original_ip_detection/xff/v3"

	"github.com/istiod-lite/istiod-lite/pilot/inspect/accesslog"
)

// address is an IP address, or the reason why it is not known.
type address struct {
	ip netip.Addr
	on string
}

// clientAddress is what an answer depends on if the address of the client is not known.
const clientAddress = "the address of the client (--from-address)"

// addressOf reads an address. on is the reason why it may not be known.
func addressOf(text, on string) address {
	ip, err := netip.ParseAddr(text)
	if err != nil {
		return address{on: on}
	}
	return address{ip: ip.Unmap()}
}

// within reports whether the address is in a range.
func (a address) within(r *corev3.CidrRange) truth {
	if a.on != "" {
		return unknown(a.on)
	}
	p, ok := prefix(r)
	return known(ok && p.Contains(a.ip))
}

// ends are the two ends of a connection as filters see them.
type ends struct {
	direct address // the other end of the connection
	remote address // the client, which a PROXY header or request headers may name
	local  address // the proxy's own
	port   uint32  // the proxy's own; 0 if it is not known
}

// endsOf returns the ends of a connection that a listener takes. A gateway's listener may have another port than the
// Service by which it is called.
func endsOf(l *listenerv3.Listener, r Request) ends {
	e := ends{direct: addressOf(r.SourceAddress, clientAddress), local: addressOf(r.Address, "the address that is called"), port: r.Port}
	e.remote = e.direct
	if r.Gateway && !r.Inbound {
		at := l.GetAddress().GetSocketAddress()
		own := at.GetAddress()
		if ip, err := netip.ParseAddr(own); err != nil || ip.IsUnspecified() {
			own = r.OwnAddress
		}
		e.local, e.port = addressOf(own, "the address of the gateway"), cmp.Or(at.GetPortValue(), r.Port)
	}
	if readsPROXY(l) != nil { // --from-address is the address in the header
		const balancer = "the load balancer that writes the PROXY header"
		e.direct, e.local, e.port = address{on: "the address of " + balancer}, address{on: "an address of " + balancer}, 0
	}
	return e
}

// readsPROXY returns the listener filter that reads headers of the PROXY protocol, or nil if there is none.
func readsPROXY(l *listenerv3.Listener) *listenerv3.ListenerFilter {
	at := slices.IndexFunc(l.GetListenerFilters(), func(f *listenerv3.ListenerFilter) bool {
		return strings.HasSuffix(f.GetTypedConfig().GetTypeUrl(), ".proxy_protocol.v3.ProxyProtocol")
	})
	if at < 0 {
		return nil
	}
	return l.GetListenerFilters()[at]
}

// greeted reports whether a listener goes on with a connection that begins with a header of the PROXY protocol, or
// without one. A header that no filter of the listener reads is taken for the beginning of the application's bytes.
func greeted(a *Answer, l *listenerv3.Listener, r *Request) bool {
	f := readsPROXY(l)
	switch {
	case f == nil && r.PROXY:
		r.Opaque, r.TLS, r.Identity, r.Certificate = true, false, "", false
		a.step(Step{What: "PROXY protocol", Name: "not read", Reason: "the connection begins with a header of the PROXY " +
			"protocol, which no filter of the listener reads"})
		return true
	case f == nil || r.PROXY || r.Taken:
		return true
	}
	if config, err := unpack(f.GetTypedConfig()); err == nil {
		if p, ok := config.(*proxyprotocolv3.ProxyProtocol); ok && p.GetAllowRequestsWithoutProxyProtocol() {
			return true
		}
	}
	if r.Inbound {
		a.end(accesslog.Unknown, 0, "listener %s takes only connections that begin with a header of the PROXY protocol, and the caller sends "+
			"none", l.GetName())
		return false
	}
	a.depends("listener %s closes connections that do not begin with a header of the PROXY protocol: the client, or a load balancer before "+
		"the gateway, must send it", l.GetName())
	return true
}

// toPort reports whether the port of the connection is from low to below high.
func (e ends) toPort(low, high uint32) truth {
	if e.port == 0 {
		return unknown("the port of the load balancer that writes the PROXY header")
	}
	return known(e.port >= low && e.port < high)
}

// identify finds the client of a request as a connection manager does, and changes the headers by which proxies tell
// each other about clients.
func (x *stream) identify(h *hcmv3.HttpConnectionManager) {
	r := &x.request
	client := x.remote // of the connection
	switch hops := int(h.GetXffNumTrustedHops()); {
	case h.GetUseRemoteAddress().GetValue():
		if hops > 0 {
			if a, there := r.forwardedFor(hops - 1); there {
				x.remote = a
			}
		}
		if !h.GetSkipXffAppend() {
			r.appendForwardedFor(client)
		}
		if hops == 0 {
			r.setHeader("x-forwarded-proto", r.scheme())
		}
		if ranges := h.GetInternalAddressConfig().GetCidrRanges(); !some(ranges, x.remote.within).possible() {
			r.setAddress("x-envoy-external-address", x.remote)
		}
	case len(h.GetOriginalIpDetectionExtensions()) == 0:
		if a, there := r.forwardedFor(hops); there {
			x.remote = a
		}
	default:
		x.detect(h.GetOriginalIpDetectionExtensions())
	}
	if _, there := r.Headers["x-forwarded-proto"]; !there {
		r.setHeader("x-forwarded-proto", r.scheme())
	}
	r.blur("x-request-id", "the value of header x-request-id, which proxies generate")
	x.certified(h)
}

// certified changes the header in which proxies tell the names in the certificate of a client.
func (x *stream) certified(h *hcmv3.HttpConnectionManager) {
	const name = "x-forwarded-client-cert"
	r := &x.request
	hasCertificate := r.TLS && (r.Identity != "" || r.Certificate)
	switch h.GetForwardClientCertDetails() {
	case hcmv3.HttpConnectionManager_ALWAYS_FORWARD_ONLY:
	case hcmv3.HttpConnectionManager_FORWARD_ONLY:
		if !hasCertificate {
			r.removeHeader(name)
		}
	case hcmv3.HttpConnectionManager_SANITIZE:
		r.removeHeader(name)
	default:
		r.removeHeader(name)
		if hasCertificate {
			r.blur(name, "the value of header "+name+", in which the proxy writes the certificate of the client")
		}
	}
}

// detect finds the client by the first extension that knows it.
func (x *stream) detect(list []*corev3.TypedExtensionConfig) {
	for _, e := range list {
		xff, header := &xffv3.XffConfig{}, &headerv3.CustomHeaderConfig{}
		switch config := e.GetTypedConfig(); {
		case config.UnmarshalTo(xff) == nil && xff.GetXffTrustedCidrs() == nil:
			if a, there := x.request.forwardedFor(int(xff.GetXffNumTrustedHops())); there {
				x.remote = a
				return
			}
		case config.UnmarshalTo(header) == nil && header.GetRejectWithStatus() == nil:
			if a := addressOf(x.request.Headers[strings.ToLower(header.GetHeaderName())], "it"); a.on == "" {
				x.remote = a
				return
			}
		default:
			x.remote = address{on: "the client that the extension " + e.GetName() + x.of(Origin{Filter: e.GetName()}) + " detects"}
			return
		}
	}
}

// forwardedFor returns an address in the header X-Forwarded-For, without the last ones, and whether there is one.
func (r Request) forwardedFor(skip int) (address, bool) {
	value, there := r.Headers["x-forwarded-for"]
	list := strings.Split(value, ",")
	if at := len(list) - 1 - skip; there && at >= 0 {
		text := strings.TrimSpace(list[at])
		if on := r.unclear["x-forwarded-for"]; on != "" && text == unclearAddress {
			return address{on: on}, true
		}
		a := addressOf(text, "it")
		return a, a.on == ""
	}
	return address{}, false
}

// unclearAddress stands for an address in a header that is not known.
const unclearAddress = "?"

// appendForwardedFor adds an address to the header X-Forwarded-For.
func (r *Request) appendForwardedFor(a address) {
	text := a.ip.String()
	if a.on != "" {
		text = unclearAddress
	}
	if had := r.Headers["x-forwarded-for"]; had != "" {
		text = had + "," + text
	}
	on := cmp.Or(r.unclear["x-forwarded-for"], a.on)
	r.setHeader("x-forwarded-for", text)
	r.blur("x-forwarded-for", on)
}

// setAddress sets a header to an address.
func (r *Request) setAddress(name string, a address) {
	r.setHeader(name, a.ip.String())
	r.blur(name, a.on)
}

// scheme returns the scheme of a request by its connection.
func (r Request) scheme() string {
	if r.TLS || r.HTTP3 {
		return "https"
	}
	return "http"
}
