package agentfaults

import (
	"context"
	"crypto/tls"
	"errors"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/istiod-lite/istiod-lite/deploy/e2e/load"
	"github.com/istiod-lite/istiod-lite/deploy/e2e/suite"
	"github.com/istiod-lite/istiod-lite/deploy/must"
)

// length is how long certificates of a minute are renewed at half of their life; 0: a few times, much sooner.
var length = flag.Duration("renewals.for", 0, "how long certificates of one minute are renewed under traffic; 0: a few renewals")

// rate is in requests a second of each caller.
const rate = 50

// TestFaults: while certificates of one minute are renewed again and again, the disk of an agent is full, the token of
// another is gone, who has no file descriptor left either, the clock of a third is set, one crashes and the control
// plane goes, no request fails. Each request has a connection of its own.
func TestFaults(t *testing.T) {
	m := suite.StartMesh(t.Context(), t, suite.MeshOptions{
		Network: network, CA: true, Env: []string{"ISTIOD_CUSTOM_HOST=" + network.Gateway().String()}, Config: "trustDomain: cluster.local\n",
		Files: map[string]string{"mesh.yaml": meshYAML},
	})
	short := []string{"SECRET_TTL=1m"}
	if *length == 0 {
		short = append(short, "SECRET_GRACE_PERIOD_RATIO=0.985", "SECRET_GRACE_PERIOD_RATIO_JITTER=0.001") // after a second
	}
	server := start(t, m, "server", true, append(short, "OUTPUT_CERTS="+full)...)
	caller := start(t, m, "caller", false, short...)
	late := start(t, m, "late", false, "SECRET_TTL=90m")
	var calls []func(context.Context) (string, error)
	for _, s := range []*sidecar{caller, late} {
		client := s.client()
		calls = append(calls, s.call(client))
		suite.Eventually(t, "an answer to "+s.pod.Name(), func() bool { _, err := s.call(client)(t.Context()); return err == nil })
	}
	traffic := load.Begin(t, load.Options{Rate: rate, Timeout: requestTimeout}, calls...)

	t.Run("Renewals", func(t *testing.T) {
		began := time.Now()
		for n := 0; n < 2 || time.Since(began) < *length; n++ {
			for _, s := range []*sidecar{server, caller} {
				s.renewed(t, s.serial(t))
			}
			must.Succeed(t, traffic.Err())
		}
	})
	t.Run("DiskIsFull", func(t *testing.T) {
		suite.Eventually(t, "the certificate is on the disk", func() bool { _, err := onDisk(server.disk); return err == nil })
		filler, err := server.disk.Create("filler")
		must.Succeed(t, err)
		suite.Eventually(t, "the agent says that it cannot write", func() bool {
			for err == nil {
				_, err = filler.Write(make([]byte, 4<<10))
			}
			if !errors.Is(err, syscall.ENOSPC) {
				t.Fatal(err)
			}
			err = nil // files of before that the agent removes leave room
			return server.said("failed to write the certificate")
		})
		before, err := onDisk(server.disk)
		if err != nil {
			t.Fatalf("the files on a full disk: %v", err)
		}
		for range 2 { // Envoy gets its certificates nevertheless
			server.renewed(t, server.serial(t))
		}
		if again, err := onDisk(server.disk); err != nil || again != before {
			t.Errorf("the files on a full disk have changed: %v", err)
		}
		must.Succeed(t, errors.Join(filler.Close(), server.disk.Remove("filler")))
		suite.Eventually(t, "the certificate is written once there is room",
			func() bool { now, err := onDisk(server.disk); return err == nil && now != before })
	})
	t.Run("AgentCrashes", func(t *testing.T) {
		crashed := start(t, m, "crashed", false)
		for range 3 { // its leftovers, such as sockets, must not disturb the next one
			crashed.crash(t)
			suite.Eventually(t, "an answer", func() bool { _, err := crashed.call(crashed.client())(t.Context()); return err == nil })
		}
	})
	t.Run("TokenIsGone", func(t *testing.T) {
		token := filepath.Join(caller.dir, "var/run/secrets/tokens/istio-token")
		must.Succeed(t, os.Rename(token, token+".away"))
		m.Pilot.Kill() // so that the agent has to prove again who it is
		must.Succeed(t, m.Pilot.Restart(t.Context()))
		suite.Eventually(t, "the agent says what it misses",
			func() bool {
				return caller.said("failed to read the token") && caller.said("failed to open a stream to the control plane")
			})
		must.Succeed(t, os.Rename(token+".away", token))
		caller.renewed(t, caller.serial(t))
		suite.Eventually(t, "a stream again", func() bool { return caller.said("reconnected to the control plane") })
	})
	t.Run("NoDescriptors", func(t *testing.T) {
		var before unix.Rlimit
		pid := caller.cmd.Process.Pid
		must.Succeed(t, unix.Prlimit(pid, unix.RLIMIT_NOFILE, nil, &before))
		must.Succeed(t, unix.Prlimit(pid, unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: 1, Max: before.Max}, nil))
		suite.Eventually(t, "the agent says what it cannot open", func() bool { return caller.said("too many open files") })
		must.Succeed(t, unix.Prlimit(pid, unix.RLIMIT_NOFILE, &before, nil))
		caller.renewed(t, caller.serial(t))
	})
	t.Run("ClockIsSet", func(t *testing.T) {
		for _, ahead := range []time.Duration{time.Hour, 0} {
			before := late.serial(t)
			late.set(t, ahead)
			late.renewed(t, before)
		}
	})
	t.Run("ServerIsAwayForADay", func(t *testing.T) {
		before := late.serial(t)
		m.Pilot.Kill()
		late.set(t, 24*time.Hour)
		suite.Eventually(t, "an alarm", func() bool { return late.said("the certificate has expired and could not be renewed") })
		if now := late.serial(t); now != before {
			t.Errorf("Envoy shows the certificate %q, and not the last one", now)
		}
		late.set(t, 0)
		must.Succeed(t, m.Pilot.Restart(t.Context()))
		caller.renewed(t, caller.serial(t))
		server.renewed(t, server.serial(t))
	})
	if err := traffic.Err(); err != nil {
		t.Error(err)
	}
	answered := traffic.Heard("server")
	if n := server.count(t, "listener.0.0.0.0_8443.ssl.handshake"); n < answered {
		t.Errorf("%d requests were answered over %d connections", answered, n)
	}
}

// onDisk returns the chain of the certificate's files, which fit each other.
func onDisk(disk *os.Root) (string, error) {
	chain, err := disk.ReadFile("cert-chain.pem")
	if err != nil {
		return "", err
	}
	key, err := disk.ReadFile("key.pem")
	if err != nil {
		return "", err
	}
	_, err = tls.X509KeyPair(chain, key)
	return strings.TrimSpace(string(chain)), err
}
