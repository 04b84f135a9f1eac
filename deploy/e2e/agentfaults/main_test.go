package agentfaults

import (
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/istiod-lite/istiod-lite/deploy/e2e/pods"
	"github.com/istiod-lite/istiod-lite/deploy/e2e/suite"
	"github.com/istiod-lite/istiod-lite/pilot/agent"
	"github.com/istiod-lite/istiod-lite/pilot/agent/config"
)

// clockVar is the variable, for a test binary that is an agent, with the file that says by how much its clock is ahead.
const clockVar = "E2E_AGENT_CLOCK"

var network *pods.Network

func TestMain(m *testing.M) {
	if file := os.Getenv(clockVar); file != "" {
		if err := runAgent(file); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	suite.Main(m, suite.Options{Prepare: suite.Programs, Network: func(n *pods.Network) { network = n }})
}

// runAgent is `pilot-agent proxy sidecar` with another clock.
func runAgent(clock string) error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	own, err := netip.ParseAddr(os.Getenv("INSTANCE_IP"))
	if err != nil {
		return err
	}
	c, err := config.Read(config.Source{Environ: os.Environ(), Addresses: []netip.Addr{own}, Version: "1.31.1"})
	if err != nil {
		return err
	}
	a, err := agent.New(agent.Options{
		Config: c, Environ: os.Environ(), Stdout: os.Stdout, Stderr: os.Stderr, Log: slog.New(slog.NewTextHandler(os.Stdout, nil)),
		Now: func() time.Time {
			text, _ := os.ReadFile(clock) // without the file it is right
			ahead, _ := time.ParseDuration(strings.TrimSpace(string(text)))
			return time.Now().Add(ahead)
		},
	})
	if err != nil {
		return err
	}
	return a.Run(ctx)
}
