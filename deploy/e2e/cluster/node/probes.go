package node

import (
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// ready reports whether the container is ready: it has no probe, or its probe succeeds.
func (c *container) ready(ctx context.Context) bool {
	select {
	case <-c.ended:
		return false
	default:
	}
	return c.spec.ReadinessProbe == nil || c.probe(ctx, c.spec.ReadinessProbe)
}

// probe runs a probe once, from the node.
func (c *container) probe(ctx context.Context, p *corev1.Probe) bool {
	ctx, cancel := context.WithTimeout(ctx, time.Duration(max(p.TimeoutSeconds, 1))*time.Second)
	defer cancel()
	switch {
	case p.HTTPGet != nil:
		address := net.JoinHostPort(c.pod.addr.String(), c.port(p.HTTPGet.Port.String()))
		scheme := "http"
		if p.HTTPGet.Scheme == corev1.URISchemeHTTPS {
			scheme = "https"
		}
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, scheme+"://"+address+p.HTTPGet.Path, nil)
		if err != nil {
			return false
		}
		// as kubelets do
		client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true, TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}}
		resp, err := client.Do(req)
		if err != nil {
			return false
		}
		_ = resp.Body.Close()
		return resp.StatusCode >= 200 && resp.StatusCode < 400
	case p.TCPSocket != nil:
		conn, err := new(net.Dialer).DialContext(ctx, "tcp", net.JoinHostPort(c.pod.addr.String(), c.port(p.TCPSocket.Port.String())))
		if err != nil {
			return false
		}
		_ = conn.Close()
		return true
	case p.Exec != nil:
		return c.exec(ctx, p.Exec.Command, nil, nil) == nil
	}
	return true
}

// port returns the number of a port.
func (c *container) port(nameOrNumber string) string {
	for _, p := range c.spec.Ports {
		if p.Name == nameOrNumber {
			return strconv.Itoa(int(p.ContainerPort))
		}
	}
	return nameOrNumber
}
