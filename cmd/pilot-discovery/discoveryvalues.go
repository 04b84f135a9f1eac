package main

import (
	"math"
	"time"
)

func discoveryChecks() checks {
	c := meshChecks()
	c["namespace"] = checkNamespace
	for _, name := range []string{"grpcAddr", "secureGRPCAddr", "httpAddr", "httpsAddr", "monitoringAddr"} {
		c[name] = checkAddress
	}
	for _, name := range []string{"keepaliveInterval", "keepaliveTimeout", "debounceMax", "remoteClusterTimeout"} {
		c[name] = durationOf(time.Millisecond, "a time, for example 10s")
	}
	for _, name := range []string{"keepaliveMaxServerConnectionAge", "shutdownDuration", "drainDuration", "debounceAfter"} {
		c[name] = durationOf(0, "a time, for example 10s, or 0")
	}
	c["kubernetesApiQPS"] = checkQPS
	c["kubernetesApiBurst"] = numberOf(1, math.MaxInt32, "a number of requests, for example 160")
	c["maxRecvMessageSize"] = numberOf(1<<10, math.MaxInt32, "a number of bytes from 1024 on, for example 4194304")
	c["maxStreams"] = numberOf(10, math.MaxInt32, "a number of streams from 10 on, for example 12000")
	c["clusterRegistriesNamespace"] = checkNamespace
	c["revision"] = checkRevision
	return c
}
