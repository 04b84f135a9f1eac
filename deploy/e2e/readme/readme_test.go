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
	"github.com/istiod-lite/istiod-lite/deploy/must"
)

// Environment variables with the paths of the programs and the documents.
const programsVar = "E2E_README_PROGRAMS"

// The documents whose commands are tried.
const (
	gettingStarted = "getting-started.md"
	ownEnvoy       = "connect-your-own-envoy.md"
)

func TestMain(m *testing.M) {
	suite.Main(m, suite.Options{
		Prepare: func(ctx context.Context, dir string) ([]string, error) {
			programs, err := binaries.Gather(ctx, dir)
			if err != nil {
				return nil, err
			}
			if _, err := programs.Agent(ctx); err != nil {
				return nil, err
			}
			root, err := binaries.ModuleRoot()
			if err != nil {
				return nil, err
			}
			for _, name := range []string{gettingStarted, ownEnvoy} {
				text, err := os.ReadFile(filepath.Join(root, "docs", name))
				if err != nil {
					return nil, err
				}
				if err := os.WriteFile(filepath.Join(dir, name), text, 0o644); err != nil {
					return nil, err
				}
			}
			return []string{programsVar + "=" + dir}, nil
		},
		Network: func(*pods.Network) {},
	})
}

// try runs every block of shell commands of a document in one shell, which stops at the first command that fails. It
// returns the output.
func try(t *testing.T, name string, least int) string {
	t.Helper()
	programs := os.Getenv(programsVar)
	text, err := os.ReadFile(filepath.Join(programs, name))
	must.Succeed(t, err)
	blocks := regexp.MustCompile("(?s)```sh\n(.*?)```\n").FindAllStringSubmatch(string(text), -1)
	if len(blocks) < least {
		t.Fatalf("%s has only %d blocks", name, len(blocks))
	}
	var script strings.Builder
	script.WriteString("set -euo pipefail\ntrap 'kill $(jobs -p) 2>/dev/null || true' EXIT\n")
	for _, b := range blocks {
		script.WriteString(b[1])
	}

	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "bash", "-c", script.String())
	cmd.Dir = t.TempDir()
	// A reader's shell is in no pod.
	cmd.Env = []string{"PATH=" + programs + ":" + os.Getenv("PATH"), "TMPDIR=" + cmd.Dir, "HOME=" + cmd.Dir}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	log, err := os.Create(filepath.Join(t.TempDir(), "log"))
	must.Succeed(t, err)
	defer log.Close()
	var out strings.Builder
	cmd.Stdout, cmd.Stderr = &out, log
	cmd.WaitDelay = 30 * time.Second
	err = cmd.Run()
	if text, readErr := os.ReadFile(log.Name()); err != nil || readErr != nil {
		t.Fatalf("%v\n%s\n%s", err, out.String(), text)
	}
	return out.String()
}

// An Envoy of one's own gets certificates from a control plane without Kubernetes, and all that check looks at is well.
func TestYourOwnEnvoy(t *testing.T) {
	said := try(t, ownEnvoy, 2)
	for _, want := range []string{
		`(?m)^✓ +in sync: CDS, EDS, LDS, RDS`,
		`(?m)^✓ +certificates: \d+, the first expires in `,
		`(?m)^nothing is wrong: \d+ checks$`,
		`"uri": "spiffe://cluster\.local/ns/default/sa/web"`,
	} {
		if !regexp.MustCompile(want).MatchString(said) {
			t.Errorf("nothing says %s:\n%s", want, said)
		}
	}
}

// A mesh of a directory, with an Envoy and two servers: both answer.
func TestMeshOfYourOwn(t *testing.T) {
	said := try(t, gettingStarted, 5)
	for _, want := range []string{
		`(?m)^6 objects in force, 0 errors, 0 warnings$`,
		`(?m)^ *\d+ v1\n *\d+ v2$`, // both answered, and no other server
		`(?m)^✓ proxies +connected: 1 proxy`,
		`(?m)^nothing is wrong: \d+ checks$`,
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

// answers returns the sum of the counts of uniq.
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
