package bootstrap

import (
	"net/netip"
	"time"

	"go.opentelemetry.io/otel/trace"

	"github.com/istiod-lite/istiod-lite/pilot/ctrlz"
	"github.com/istiod-lite/istiod-lite/pilot/ingest"
	"github.com/istiod-lite/istiod-lite/pilot/ports"
)

// Options of a Server: what the command line said, nothing read from elsewhere.
type Options struct {
	ingest.Options

	Panics func() map[string]uint64 // recovered panics by name, for the metric; nil counts none

	// Addresses to listen on, host:port. Port 0 takes a free one. With GRPC empty, plaintext ADS is served on HTTP's
	// port.
	GRPC, SecureGRPC, HTTP, HTTPS, Monitoring string
	AddressFile                               string // where to write what was bound, or empty

	APIClients []netip.Prefix // whom the objects of configuration themselves are served; nil: peers on this host
	Relay      bool           // they are served also what other control planes serve this one

	// Registration of workloads that name a WorkloadGroup.
	NoRegistration    bool
	NoHealth          bool          // what they report of their health is not written
	RegistrationGrace time.Duration // from the end of a proxy's last stream to the end of its WorkloadEntry; 0 is 10 s
	RegisterAnyone    bool          // peers on other hosts need not prove who they are
	StatusRate        int           // where Advice is set: objects whose status is written in a second at most
	NoElection        bool          // this is the only replica: it cleans up without being elected
	External          bool          // keep the webhooks and the roots of remote clusters too that ask for it

	Certificates Certificates
	KeySets      KeySets
	Injection    Injection
	Webhooks     Webhooks
	Gateways     Gateways

	KeepaliveInterval, KeepaliveTimeout time.Duration
	MaxConnectionAge                    time.Duration // 0: connections are not closed for their age
	ProofTime                           time.Duration // see xds.Options
	Drain                               time.Duration // from not being ready any more to refusing connections
	Shutdown                            time.Duration // after that, how long streams and all else that runs get to end by themselves

	DebounceAfter, DebounceMax time.Duration
	NoVirtualHosts             bool // route configurations go whole to every proxy
	NoMemo                     bool // encode every resource again, sharing nothing

	Profile         bool     // serve /debug/pprof
	AdminPages      bool     // serve debug pages that change something
	NoDebugHTTP     bool     // debug pages are served over xDS alone
	DebugNamespaces []string // beside Namespace: whose service accounts may read all debug pages
	ControlZ        ControlZ
	Tracer          trace.Tracer // of the spans of pushes; nil if pushes are not traced

	Ready func() // called when the server turned ready; may be nil
}

// ControlZ are the options of the port by which `istioctl admin log` reads and sets the levels of the log.
type ControlZ struct {
	Address  string // host:port; empty: there is none
	Required bool   // it is an error if the port cannot be had

	Scopes        ctrlz.Scopes
	Args, Environ []string // of the process; see ctrlz.Options
}

func (o Options) keepalive() ports.Keepalive {
	return ports.Keepalive{Interval: o.KeepaliveInterval, Timeout: o.KeepaliveTimeout, MaxAge: o.MaxConnectionAge, Grace: o.Shutdown}
}
