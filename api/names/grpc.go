package names

import (
	"net"
	"strconv"
)

// ProxylessServer is the prefix of the names of listeners of servers that use xDS without a proxy. The server's listen
// address follows.
const ProxylessServer = "xds.istio.io/grpc/lds/inbound/"

// ProxylessPort returns the listener name that a server without a proxy requests for a port at all addresses.
func ProxylessPort(port uint32) string {
	return ProxylessServer + net.JoinHostPort("0.0.0.0", strconv.Itoa(int(port)))
}
