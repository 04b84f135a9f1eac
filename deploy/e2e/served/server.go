package served

import (
	"encoding/json"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/istiod-lite/istiod-lite/deploy/e2e/binaries"
	"github.com/istiod-lite/istiod-lite/deploy/e2e/controlplane"
)

// patience is the limit of every wait. It is far more than a busy machine needs.
const patience = 3 * time.Minute

// Options say what to start.
type Options struct {
	Mesh      map[string]string // the files of the directory, by name
	Authority bool              // start a certificate authority
	Args      []string          // more of the command line
}

// Server is a running control plane.
type Server struct {
	*controlplane.Process

	t       *testing.T
	program string
	dir     string
}

// Start starts a control plane on free ports of loopback. PILOT_DISCOVERY names the program, which is built by default.
func Start(t *testing.T, o Options) *Server {
	t.Helper()
	work := t.TempDir()
	s := &Server{t: t, program: os.Getenv("PILOT_DISCOVERY"), dir: filepath.Join(work, "mesh")}
	if s.program == "" {
		s.program = filepath.Join(work, "pilot-discovery")
		s.must(binaries.Build(t.Context(), s.program, "./cmd/pilot-discovery"))
	}
	s.must(os.Mkdir(s.dir, 0o700))
	for name, text := range o.Mesh {
		s.Write(name, text)
	}
	run := controlplane.Options{Binary: s.program, ConfigDir: s.dir, WorkDir: work, Host: "127.0.0.1", Args: o.Args}
	if o.Authority {
		run.StateDir = filepath.Join(work, "state")
		s.must(os.Mkdir(run.StateDir, 0o700))
	}
	var err error
	s.Process, err = controlplane.Start(t.Context(), run)
	s.must(err)
	t.Cleanup(func() {
		s.Stop()
		if t.Failed() {
			text, _ := os.ReadFile(s.LogFile())
			t.Logf("the control plane said:\n%s", text[max(0, len(text)-8000):])
		}
	})
	return s
}

func (s *Server) must(err error) {
	s.t.Helper()
	if err != nil {
		s.t.Fatal(err)
	}
}

// Write replaces a whole file of the mesh. It may be called from any goroutine while the test runs.
func (s *Server) Write(name, text string) {
	tmp := filepath.Join(filepath.Dir(s.dir), "new-"+name)
	err := os.WriteFile(tmp, []byte(text), 0o600)
	if err == nil {
		err = os.Rename(tmp, filepath.Join(s.dir, name))
	}
	if err != nil {
		s.t.Errorf("write %s: %v", name, err)
	}
}

// Load connects simulated proxies until the test ends, with arguments of pilot-discovery load. It does not wait.
func (s *Server) Load(proxies int, args ...string) {
	s.t.Helper()
	c := exec.CommandContext(s.t.Context(), s.program,
		append([]string{"load", "--address", s.GRPC, "--proxies", strconv.Itoa(proxies), "--duration", "2h"}, args...)...)
	s.must(c.Start())
	s.t.Cleanup(func() { _ = c.Wait() })
}

// Fetch returns the status and the text of a page of the monitoring port.
func (s *Server) Fetch(path string) (int, string) {
	s.t.Helper()
	req, err := http.NewRequestWithContext(s.t.Context(), http.MethodGet, "http://"+s.Monitoring+path, nil)
	s.must(err)
	resp, err := http.DefaultClient.Do(req)
	s.must(err)
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	s.must(err)
	return resp.StatusCode, string(text)
}

// Read decodes a JSON page of the monitoring port.
func (s *Server) Read(path string, to any) {
	s.t.Helper()
	code, text := s.Fetch(path)
	if err := json.Unmarshal([]byte(text), to); err != nil || code != http.StatusOK {
		s.t.Fatalf("%s: %d %v %.1000s", path, code, err, text)
	}
}

// Eventually waits until ok reports true.
func (s *Server) Eventually(what string, ok func() bool) {
	s.t.Helper()
	for end := time.Now().Add(patience); !ok(); time.Sleep(50 * time.Millisecond) {
		if time.Now().After(end) {
			s.t.Fatalf("not within %s: %s", patience, what)
		}
		select {
		case <-s.Ended():
			s.t.Fatalf("the control plane has ended before %s", what)
		default:
		}
	}
}
