package bootstrap

import (
	"net/netip"
	"time"

	"go.opentelemetry.io/otel/trace"

	"github.com/istiod-lite/istiod-lite/pilot/ctrlz"
	"github.com/istiod-lite/istiod-lite/pilot/ingest"
	"github.com/istiod-lite/istiod-lite/pilot/metrics"
	"github.com/istiod-lite/istiod-lite/pilot/ports"
)

// Options configure a Server. The command line sets them; nothing is read from elsewhere.
type Options struct {
	ingest.Options

	Panics metrics.Panics // for the metric; nil if panics are not counted

	// Addresses to listen on, host:port. Port 0 takes a free port. If GRPC is empty, plaintext ADS is served on the
	// HTTP port.
	GRPC, SecureGRPC, HTTP, HTTPS, Monitoring string
	AddressFile                               string // file for the addresses of the open ports, or empty

	// APIClients may read objects of configuration. Nil for peers on this host only.
	APIClients []netip.Prefix
	Relay      bool // also serve them the objects from other control planes

	// Registration of workloads that name a WorkloadGroup.
	NoRegistration bool
	NoHealth       bool // do not write the health that proxies report
	// RegistrationGrace is the time from the end of a proxy's last stream to the deletion of its WorkloadEntry. 0 for
	// 10 s.
	RegistrationGrace time.Duration
	RegisterAnyone    bool // accept peers on other hosts without a proved identity
	Conditions        bool // write whether objects are in force into their statuses
	StatusRate        int  // most objects per second whose status is written
	NoElection        bool // this is the only replica, which acts without election
	External          bool // also serve remote clusters that request it with webhook configurations and roots

	Certificates Certificates
	KeySets      KeySets
	Injection    Injection
	Webhooks     Webhooks
	Gateways     Gateways
	Untaint      Untaint

	KeepaliveInterval, KeepaliveTimeout time.Duration
	MaxConnectionAge                    time.Duration // 0 for no bound
	ProofTime                           time.Duration // see xds.Options
	Drain                               time.Duration // from failing the readiness probe to refusing connections
	Shutdown                            time.Duration // time for streams and other work to end after that

	DebounceAfter, DebounceMax time.Duration
	AnyTrustDomain             bool // workloads accept peers of any trust domain that their roots prove
	NoVirtualHosts             bool // send whole route configurations to every proxy
	NoMemo                     bool // encode every resource again without the cache

	Profile         bool     // serve /debug/pprof
	AdminPages      bool     // serve debug pages that change something
	NoDebugHTTP     bool     // serve debug pages over xDS only
	DebugNamespaces []string // other namespaces than Namespace whose service accounts may read all debug pages
	ControlZ        ControlZ
	Tracer          trace.Tracer // tracer of pushes; optional

	Ready func() // called when the server becomes ready; optional
}

// ControlZ configures the port for `istioctl admin log`, which reads and sets log levels.
type ControlZ struct {
	Address  string // host:port, or empty for none
	Required bool   // fail if the port cannot be opened

	Scopes        ctrlz.Scopes
	Args, Environ []string // of the process; see ctrlz.Options
}

func (o Options) keepalive() ports.Keepalive {
	return ports.Keepalive{Interval: o.KeepaliveInterval, Timeout: o.KeepaliveTimeout, MaxAge: o.MaxConnectionAge, Grace: o.Shutdown}
}
