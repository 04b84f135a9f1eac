package status

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/textproto"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/istiod-lite/istiod-lite/pilot/agent/health"
)

// prober is one entry of ISTIO_KUBE_APP_PROBERS: a probe or hook in the format of Kubernetes.
type prober struct {
	HTTPGet *struct {
		Path    string `json:"path"`
		Host    string `json:"host"`
		Port    port   `json:"port"`
		Scheme  string `json:"scheme"`
		Headers []struct {
			Name  string `json:"name"`
			Value string `json:"value"`
		} `json:"httpHeaders"`
	} `json:"httpGet"`
	TCPSocket *struct {
		Host string `json:"host"`
		Port port   `json:"port"`
	} `json:"tcpSocket"`
	GRPC *struct {
		Port    port   `json:"port"`
		Service string `json:"service"`
	} `json:"grpc"`
	TimeoutSeconds int `json:"timeoutSeconds"`
}

// port is a port number, which may be a string in JSON.
type port uint16

func (p *port) UnmarshalJSON(b []byte) error {
	n, err := strconv.ParseUint(strings.Trim(string(b), `"`), 10, 16)
	if err != nil || n == 0 {
		return fmt.Errorf("port %s is not a number from 1 to 65535", b)
	}
	*p = port(n)
	return nil
}

// proberPath matches the paths of probes and hooks.
var proberPath = regexp.MustCompile(`^/(app-health/[^/{}]+/(livez|readyz|startupz)|app-lifecycle/[^/{}]+/(prestopz|poststartz))$`)

// hookPrefix is the prefix of the paths of hooks.
const hookPrefix = "/app-lifecycle/"

// parseProbers returns the probes and hooks by path.
func parseProbers(text, host string, http1 bool) (map[string]*health.Probe, error) {
	if text == "" {
		return nil, nil
	}
	var probers map[string]*prober
	if err := json.Unmarshal([]byte(text), &probers); err != nil {
		return nil, err
	}
	probes := make(map[string]*health.Probe, len(probers))
	for path, p := range probers {
		if !proberPath.MatchString(path) {
			return nil, fmt.Errorf("%q is not the path of a probe, such as /app-health/CONTAINER/livez, or of a hook, "+
				"such as /app-lifecycle/CONTAINER/prestopz", path)
		}
		probe, err := p.probe(cmp.Or(host, "localhost"))
		if err != nil {
			return nil, fmt.Errorf("%q: %w", path, err)
		}
		if probe.HTTP != nil {
			probe.HTTP.HTTP2 = !http1
		}
		if strings.HasPrefix(path, hookPrefix) && p.TimeoutSeconds == 0 {
			probe.Timeout = 0 // a hook may take as long as the kubelet waits
		}
		probes[path] = probe
	}
	return probes, nil
}

// probe returns the probe to make. Its host is the pod's own address, even if a user wrote another one for the
// kubelet.
func (p *prober) probe(host string) (*health.Probe, error) {
	if p == nil {
		return nil, errors.New("the probe is null")
	}
	probe := &health.Probe{Timeout: time.Duration(max(p.TimeoutSeconds, 1)) * time.Second, Source: true}
	addr := func(n port) string { return net.JoinHostPort(host, strconv.Itoa(int(n))) }
	switch {
	case p.HTTPGet != nil:
		scheme := strings.ToLower(cmp.Or(p.HTTPGet.Scheme, "http"))
		if scheme != "http" && scheme != "https" {
			return nil, fmt.Errorf("httpGet.scheme: %q is neither HTTP nor HTTPS", p.HTTPGet.Scheme)
		}
		if p.HTTPGet.Port == 0 {
			return nil, errors.New("httpGet.port: missing")
		}
		header := http.Header{}
		for _, h := range p.HTTPGet.Headers {
			header.Add(h.Name, h.Value)
		}
		probe.HTTP = &health.HTTP{URL: scheme + "://" + addr(p.HTTPGet.Port) + "/" + strings.TrimPrefix(p.HTTPGet.Path, "/"), Header: header}
	case p.TCPSocket != nil && p.TCPSocket.Port != 0:
		probe.TCP = addr(p.TCPSocket.Port)
	case p.GRPC != nil && p.GRPC.Port != 0:
		probe.GRPC = &health.GRPC{Addr: addr(p.GRPC.Port), Service: p.GRPC.Service}
	default:
		return nil, errors.New("one of httpGet, tcpSocket and grpc is needed, with a port")
	}
	return probe, nil
}

// hopByHop returns the names of headers that are not forwarded.
func hopByHop() []string {
	return []string{"Connection", "Keep-Alive", "Proxy-Authenticate", "Proxy-Authorization", "Te", "Trailer", "Transfer-Encoding",
		"Upgrade", "Accept-Encoding"}
}

// serveProbe returns a handler that makes a probe. The status of the response is the application's, or 500 if it did
// not respond.
func (s *Server) serveProbe(p *health.Probe) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		request := *p
		if p.HTTP != nil {
			header := r.Header.Clone()
			for _, name := range hopByHop() {
				header.Del(name)
			}
			for name, values := range p.HTTP.Header {
				header[textproto.CanonicalMIMEHeaderKey(name)] = values
			}
			request.HTTP = &health.HTTP{URL: p.HTTP.URL, Header: header, HTTP2: p.HTTP.HTTP2}
		}
		err := request.Check(r.Context())
		var answered *health.HTTPError
		switch {
		case err == nil:
			w.WriteHeader(http.StatusOK)
		case errors.As(err, &answered) && answered.Code >= 200:
			http.Error(w, err.Error(), answered.Code)
		default:
			s.o.Log.Debug("a probe of the application failed", "path", r.URL.Path, "err", err)
			http.Error(w, err.Error(), http.StatusInternalServerError)
		}
	}
}
