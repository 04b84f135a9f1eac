package capture

import (
	"bytes"
	"context"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"

	"github.com/istiod-lite/istiod-lite/deploy/e2e/pods"
	"github.com/istiod-lite/istiod-lite/deploy/must"
	"github.com/istiod-lite/istiod-lite/pilot/agent/capture"
)

// argsVar has this program be `pilot-agent istio-iptables`, with these arguments.
const argsVar = "ISTIOD_LITE_CAPTURE_ARGS"

func TestMain(m *testing.M) {
	if args, ok := os.LookupEnv(argsVar); ok {
		cmd := capture.Command(os.Getenv)
		cmd.SetArgs(strings.Split(args, "\n"))
		if err := cmd.Execute(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	if pods.Inside() {
		os.Exit(m.Run())
	}
	if err := pods.Enter(context.Background(), pods.EnterOptions{Args: os.Args[1:]}); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// network is the one of all tests.
var network = sync.OnceValue(func() *pods.Network {
	n, err := pods.NewNetwork(netip.MustParsePrefix("10.20.0.0/16"))
	if err != nil {
		panic(err)
	}
	return n
})

// add makes a pod that goes when the test ends.
func add(t *testing.T, name, addr string) *pods.Pod {
	t.Helper()
	p, err := network().Add(pods.Spec{Name: name, Addr: netip.MustParseAddr(addr)})
	must.Succeed(t, err)
	t.Cleanup(func() { p.Close() })
	return p
}

// istioIptables runs the command in a pod, and returns what it prints.
func istioIptables(t *testing.T, p *pods.Pod, args ...string) string {
	t.Helper()
	out, err := tryIstioIptables(p, args...)
	if err != nil {
		t.Fatalf("%v: %v: %s", args, err, out)
	}
	return out
}

func tryIstioIptables(p *pods.Pod, args ...string) (string, error) {
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), argsVar+"="+strings.Join(args, "\n"))
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := p.Start(cmd); err != nil {
		return "", err
	}
	err := cmd.Wait()
	return out.String(), err
}

// injected are the arguments of an injected pod's init container.
func injected(mode string, more ...string) []string {
	return append([]string{"-p", "15001", "-z", "15006", "-u", "1337", "-m", mode, "-i", "*", "-x", "", "-b", "*", "-d", "15090,15021,15020",
		"--log_output_level=default:info"}, more...)
}
