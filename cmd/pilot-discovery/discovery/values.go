package discovery

import (
	"math"
	"time"

	"github.com/istiod-lite/istiod-lite/cmd/pilot-discovery/cli"
	"github.com/istiod-lite/istiod-lite/cmd/pilot-discovery/input"
)

func discoveryChecks() cli.Checks {
	c := input.MeshChecks()
	c["namespace"] = cli.CheckNamespace
	for _, name := range []string{"grpcAddr", "secureGRPCAddr", "httpAddr", "httpsAddr", "monitoringAddr"} {
		c[name] = cli.CheckAddress
	}
	for _, name := range []string{"keepaliveInterval", "keepaliveTimeout", "debounceMax", "remoteClusterTimeout"} {
		c[name] = cli.DurationOf(time.Millisecond, "a time, for example 10s")
	}
	for _, name := range []string{"keepaliveMaxServerConnectionAge", "shutdownDuration", "drainDuration", "debounceAfter"} {
		c[name] = cli.DurationOf(0, "a time, for example 10s, or 0")
	}
	c["kubernetesApiQPS"] = cli.CheckQPS
	c["kubernetesApiBurst"] = cli.NumberOf(1, math.MaxInt32, "a number of requests, for example 160")
	c["maxRecvMessageSize"] = cli.NumberOf(1<<10, math.MaxInt32, "a number of bytes from 1024 on, for example 4194304")
	c["maxStreams"] = cli.NumberOf(10, math.MaxInt32, "a number of streams from 10 on, for example 12000")
	c["clusterRegistriesNamespace"] = cli.CheckNamespace
	c["revision"] = cli.CheckRevision
	return c
}
