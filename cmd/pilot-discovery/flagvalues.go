package main

import (
	"errors"
	"fmt"
	"math"
	"net"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/api/validate/content"
)

// checks return what is wrong with a flag's value, and what to write instead. The parser has seen to it that it is
// of the flag's type.
type checks map[string]func(value string) error

// run checks every flag of the set that has a check, given or not: defaults come from the environment.
func (c checks) run(flags *pflag.FlagSet) error {
	var errs []error
	flags.VisitAll(func(f *pflag.Flag) {
		if check := c[f.Name]; check != nil {
			if err := check(f.Value.String()); err != nil {
				errs = append(errs, fmt.Errorf("--%s=%s: %w", f.Name, quoted(f.Value.String()), err))
			}
		}
	})
	return errors.Join(errs...)
}

// quoted marks values that would not be seen.
func quoted(value string) string {
	if value == "" || strings.ContainsAny(value, " \t\n\"") {
		return strconv.Quote(value)
	}
	return value
}

// meshChecks are those of the flags that commands share which work on a directory.
func meshChecks() checks {
	return checks{
		"domain":         checkDomain,
		"clusterID":      checkClusterID,
		"istioNamespace": checkNamespace,
	}
}

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

// checkMeshFiles sees to it that the files are there which flags name; those that they have by default need not be.
func checkMeshFiles(flags *pflag.FlagSet) error {
	for _, name := range []string{"meshConfig", "networksConfig"} {
		if path := flags.Lookup(name).Value.String(); flags.Changed(name) && path != "" {
			if _, err := os.Stat(path); err != nil {
				return fmt.Errorf("--%s: %w", name, err)
			}
		}
	}
	return nil
}

func checkDomain(v string) error {
	if content.IsDNS1123Subdomain(v) != nil {
		return errors.New("write the DNS domain of the cluster, for example cluster.local")
	}
	return nil
}

func checkNamespace(v string) error {
	if content.IsDNS1123Label(v) != nil {
		return errors.New("write the name of a namespace, for example istio-system")
	}
	return nil
}

func checkRevision(v string) error {
	if v != "" && content.IsDNS1123Label(v) != nil {
		return errors.New("write a name of small letters, digits and dashes, for example canary, or nothing")
	}
	return nil
}

// checkClusterID refuses what looks like no cluster, or breaks the text that IDs are put into.
func checkClusterID(v string) error {
	if v == "" || len(v) > 253 || strings.ContainsFunc(v, func(r rune) bool { return r <= ' ' || r == 0x7f || r == '/' || r == '~' }) {
		return errors.New("write the name of the cluster as proxies have it in CLUSTER_ID, without spaces, for example Kubernetes")
	}
	return nil
}

// checkAddress takes host:port, with an empty host for all of this machine's addresses, and nothing for not at all.
func checkAddress(v string) error {
	if v == "" {
		return nil
	}
	_, port, err := net.SplitHostPort(v)
	if err == nil {
		_, err = strconv.ParseUint(port, 10, 16)
	}
	if err != nil {
		return errors.New("write host:port or :port, with a port from 0 (any that is free) to 65535, for example :15010")
	}
	return nil
}

func checkQPS(v string) error {
	n, err := strconv.ParseFloat(v, 64)
	if err != nil || math.IsNaN(n) || n < 0.1 || n > math.MaxInt32 {
		return errors.New("write a number of requests a second, for example 80")
	}
	return nil
}

func durationOf(least time.Duration, what string) func(string) error {
	const most = 10 * 365 * 24 * time.Hour
	return func(v string) error {
		if d, err := time.ParseDuration(v); err != nil || d < least || d > most {
			return errors.New("write " + what)
		}
		return nil
	}
}

func numberOf(least, most int64, what string) func(string) error {
	return func(v string) error {
		if n, err := strconv.ParseInt(v, 10, 64); err != nil || n < least || n > most {
			return errors.New("write " + what)
		}
		return nil
	}
}
