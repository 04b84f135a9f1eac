package main

import (
	"io"
	"strconv"
	"strings"
	"testing"
)

// Values that are of their flag's type and yet nonsense are refused, by the flag's name, with the value and with what
// to write.
func TestInvalidFlagValues(t *testing.T) {
	for _, x := range []struct{ flag, value, write string }{
		{"kubernetesApiQPS", "NaN", "a number of requests a second"},
		{"kubernetesApiQPS", "+Inf", "a number of requests a second"},
		{"kubernetesApiQPS", "-1", "a number of requests a second"},
		{"kubernetesApiQPS", "0", "a number of requests a second"},
		{"kubernetesApiBurst", "-1", "a number of requests"},
		{"kubernetesApiBurst", "0", "a number of requests"},
		{"clusterID", "", "the name of the cluster"},
		{"clusterID", "a b", "the name of the cluster"},
		{"domain", "", "cluster.local"},
		{"domain", "a..b", "cluster.local"},
		{"namespace", "", "istio-system"},
		{"namespace", "Istio_System", "istio-system"},
		{"revision", "Canary!", "canary"},
		{"grpcAddr", ":65536", ":15010"},
		{"secureGRPCAddr", "15012", ":15010"},
		{"httpAddr", "127.0.0.1:-1", ":15010"},
		{"httpsAddr", "127.0.0.1", ":15010"},
		{"monitoringAddr", ":http", ":15010"},
		{"keepaliveInterval", "-30s", "10s"},
		{"keepaliveTimeout", "0s", "10s"},
		{"keepaliveMaxServerConnectionAge", "-1s", "10s, or 0"},
		{"shutdownDuration", "-1s", "10s, or 0"},
		{"drainDuration", "-1ns", "10s, or 0"},
		{"debounceAfter", "-1s", "10s, or 0"},
		{"debounceMax", "0s", "10s"},
		{"remoteClusterTimeout", "-1s", "10s"},
		{"maxRecvMessageSize", "-1", "4194304"},
		{"maxStreams", "0", "12000"},
		{"apiClients", "10.0.0.1", "10.0.0.0/8"},
	} {
		var said strings.Builder
		code := run(t.Context(), []string{"discovery", "--configDir", t.TempDir(), "--" + x.flag + "=" + x.value}, nil, io.Discard, &said)
		shown := x.value
		if shown == "" || strings.Contains(shown, " ") {
			shown = strconv.Quote(shown)
		}
		if got := said.String(); code != 1 || !strings.Contains(got, "error: --"+x.flag+"="+shown+": write ") || !strings.Contains(got, x.write) {
			t.Errorf("--%s=%s: %d, %s", x.flag, x.value, code, got)
		}
	}
	var said strings.Builder
	env := []string{"CLUSTER_ID=a b", "PILOT_WORKLOAD_ENTRY_GRACE_PERIOD=-5s"}
	if code := run(t.Context(), []string{"validate", t.TempDir()}, env, io.Discard, &said); code != 1 {
		t.Errorf("a command that works on a directory: %d", code)
	}
	for _, want := range []string{`--clusterID="a b"`,
		`PILOT_WORKLOAD_ENTRY_GRACE_PERIOD="-5s" is not understood, and 10s is used: write a duration such as 12h`} {
		if !strings.Contains(said.String(), want) {
			t.Errorf("no %s in %s", want, said.String())
		}
	}
}

type writerFunc func(string)

func (f writerFunc) Write(text []byte) (int, error) {
	f(string(text))
	return len(text), nil
}
