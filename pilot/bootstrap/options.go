package bootstrap

import (
	"log/slog"
	"time"

	"github.com/istiod-lite/istiod-lite/api/limits"
)

// Options of a Server: what the command line said, nothing read from elsewhere.
type Options struct {
	Logger  *slog.Logger
	Version string                   // of the build, as /version and istio_build have it
	Panics  func() map[string]uint64 // recovered panics by name, for the metric; nil counts none

	// Addresses to listen on, host:port. Port 0 takes a free one. With GRPC empty, plaintext ADS is served on HTTP's port.
	GRPC, SecureGRPC, HTTP, HTTPS, Monitoring string
	AddressFile                               string // where to write what was bound, or empty

	// Sources.
	ConfigDir    string // a directory of YAML, or empty
	MeshConfig   string // a file; where there is none, the ConfigMap named istio in the root namespace
	MeshNetworks string // a file with networks, in the form of the ConfigMap's key meshNetworks

	// Who this is.
	Namespace string // the root namespace
	Domain    string // cluster.local
	ClusterID string
	PodName   string

	KeepaliveInterval, KeepaliveTimeout time.Duration
	MaxConnectionAge                    time.Duration // 0: connections are not closed for their age
	Shutdown                            time.Duration // how long streams get to end by themselves

	DebounceAfter, DebounceMax time.Duration
	Poll                       time.Duration // how often the directory is looked through, whatever its events say
	NoWatch                    bool          // look through the directory only, without file events
	NoMemo                     bool          // encode every resource anew

	Profile bool // serve /debug/pprof
	Limits  limits.Limits
}
