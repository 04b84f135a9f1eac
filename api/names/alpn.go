package names

// PeerExchange is the ALPN protocol of TCP connections between proxies that exchange metadata before their payload.
const PeerExchange = "istio-peer-exchange"

// The ALPN protocols of mTLS between proxies of the mesh, by what the connection carries. They distinguish it from any
// other TLS.
var (
	MeshHTTPALPN = []string{"istio-http/1.0", "istio-http/1.1", "istio-h2"}
	MeshTCPALPN  = []string{PeerExchange, "istio"}
	MeshALPN     = []string{"istio", PeerExchange, "istio-http/1.0", "istio-http/1.1", "istio-h2"}
)
