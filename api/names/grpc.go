package names

import (
	"net"
	"strconv"
)

// ProxylessServer begins the names of the listeners of servers that use xDS without a proxy. The address at which a
// server listens follows.
const ProxylessServer = "xds.istio.io/grpc/lds/inbound/"

// ProxylessPort returns the name by which a server without a proxy asks for the listener of a port at every address.
func ProxylessPort(port uint32) string {
	return ProxylessServer + net.JoinHostPort("0.0.0.0", strconv.Itoa(int(port)))
}
