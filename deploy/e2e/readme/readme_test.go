package readme

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/istiod-lite/istiod-lite/deploy/e2e/binaries"
	"github.com/istiod-lite/istiod-lite/deploy/e2e/pods"
	"github.com/istiod-lite/istiod-lite/deploy/e2e/suite"
)

// How the test is told where the programs and the README are.
const programsVar = "E2E_README_PROGRAMS"

func TestMain(m *testing.M) {
	suite.Main(m, suite.Options{
		Prepare: func(ctx context.Context, dir string) ([]string, error) {
			if _, err := binaries.Gather(ctx, dir); err != nil {
				return nil, err
			}
			root, err := binaries.ModuleRoot()
			if err != nil {
				return nil, err
			}
			text, err := os.ReadFile(filepath.Join(root, "README.md"))
			if err != nil {
				return nil, err
			}
			return []string{programsVar + "=" + dir}, os.WriteFile(filepath.Join(dir, "README.md"), text, 0o644)
		},
		Network: func(*pods.Network) {},
	})
}

// TestMeshOfYourOwn does what a reader does. The shell stops at the first command that fails.
func TestMeshOfYourOwn(t *testing.T) {
	programs := os.Getenv(programsVar)
	readme, err := os.ReadFile(filepath.Join(programs, "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, section, found := strings.Cut(string(readme), "\n### A mesh of your own\n")
	section, _, ends := strings.Cut(section, "\n### ")
	blocks := regexp.MustCompile("(?s)```sh\n(.*?)```\n").FindAllStringSubmatch(section, -1)
	if !found || !ends || len(blocks) < 5 {
		t.Fatalf("the README has no such section, or only %d blocks in it", len(blocks))
	}
	var script strings.Builder
	script.WriteString("set -euo pipefail\n")
	for _, b := range blocks {
		script.WriteString(b[1])
	}

	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "bash", "-c", script.String())
	cmd.Dir = t.TempDir()
	cmd.Env = append(os.Environ(), "PATH="+programs+":"+os.Getenv("PATH"), "TMPDIR="+cmd.Dir, "POD_NAME=", "POD_NAMESPACE=istio-system")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	log, err := os.Create(filepath.Join(cmd.Dir, "log"))
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	var out strings.Builder
	cmd.Stdout, cmd.Stderr = &out, log
	cmd.WaitDelay = 30 * time.Second
	err = cmd.Run()
	said := out.String()
	if text, readErr := os.ReadFile(log.Name()); err != nil || readErr != nil {
		t.Fatalf("%v\n%s\n%s", err, said, text)
	}
	for _, want := range []string{
		`(?m)^6 objects in force, 0 errors, 0 warnings$`,
		`(?m)^ *\d+ v1\n *\d+ v2$`, // both answered, and nobody else
		`(?m)^client\.default +Kubernetes +sidecar +envoy-\S+( +SYNCED \(\d+s\)){4} +\d+s$`,
		`(?m)^\[\]$`, // no findings
		`(?m)^outbound\|9000\|\|hello\.default\.svc\.cluster\.local +EDS +127\.0\.0\.2:9001, 127\.0\.0\.3:9001$`,
	} {
		if !regexp.MustCompile(want).MatchString(said) {
			t.Errorf("nothing says %s:\n%s", want, said)
		}
	}
	if n := answers(said); n != 20 {
		t.Errorf("%d of 20 requests were answered", n)
	}
}

// answers adds up what uniq counted.
func answers(said string) int {
	sum := 0
	for _, m := range regexp.MustCompile(`(?m)^ *(\d+) v[12]$`).FindAllStringSubmatch(said, -1) {
		n := 0
		if _, err := fmt.Sscan(m[1], &n); err == nil {
			sum += n
		}
	}
	return sum
}
