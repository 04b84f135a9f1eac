package safe

import (
	"net"
	"net/http"
	"net/netip"
	"strings"
)

// NotRebound reports whether the Host header of a request, HOST or HOST:PORT, is localhost, an address or empty. A web
// page can point its own DNS name at an address of this host, and would then read responses as its own origin's. It
// cannot do so for these hosts.
func NotRebound(host string) bool {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	host = strings.Trim(host, "[]")
	if host == "" || strings.EqualFold(host, "localhost") {
		return true
	}
	_, err := netip.ParseAddr(host)
	return err == nil
}

// CrossOrigin reports whether a browser marks a request, of any method, as made by a page of another origin. Requests
// of other clients have no such mark.
func CrossOrigin(r *http.Request) bool {
	unsafe := r.WithContext(r.Context())
	unsafe.Method = http.MethodPost // CrossOriginProtection accepts every GET, because a GET should change nothing
	return new(http.CrossOriginProtection).Check(unsafe) != nil
}
