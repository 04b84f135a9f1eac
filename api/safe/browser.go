package safe

import (
	"net"
	"net/http"
	"net/netip"
	"strings"
)

// NotRebound reports whether HOST or HOST:PORT, of a request's Host header, is localhost, an address or empty. A web
// page can bind a DNS name of its own to an address of this host, and would then read answers as a page of this host.
// It cannot bind these.
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

// CrossOrigin reports whether a browser says that a page of another origin makes a request, whatever its method is. A
// client that is no browser says nothing, and its request has no other origin.
func CrossOrigin(r *http.Request) bool {
	unsafe := r.WithContext(r.Context())
	unsafe.Method = http.MethodPost // CrossOriginProtection accepts every GET, because a GET is to change nothing
	return new(http.CrossOriginProtection).Check(unsafe) != nil
}
