package kube

import (
	"flag"
	"fmt"
	"os"
	"testing"

	"github.com/istiod-lite/istiod-lite/deploy/e2e/installed"
)

const root = installed.Namespace

// program is the binary under test.
var program string

// TestMain runs several tests in parallel, unless the command line says otherwise, because they mostly wait. Each of
// them needs a cluster. The test binary is also a replica of an election.
func TestMain(m *testing.M) {
	if name := os.Getenv(replicaVar); name != "" {
		if err := replica(name, os.Getenv(kubeconfigVar)); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	if err := flag.Set("test.parallel", "3"); err != nil {
		panic(err)
	}
	installed.Main(m, &program)
}
