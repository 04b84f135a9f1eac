package pilotagent

import (
	"context"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/istiod-lite/istiod-lite/deploy/e2e/suite"
	"github.com/istiod-lite/istiod-lite/deploy/must"
	"github.com/istiod-lite/istiod-lite/pilot/agent/sds"
	"github.com/istiod-lite/istiod-lite/pilot/agent/secrets"
)

// foreignSocket is the name of the socket of another server of certificates, in the place of an agent's own.
const foreignSocket = "spire"

// serveCertificates stands for SPIRE beside an agent: it serves the certificate of an account.
func (m *mesh) serveCertificates(t *testing.T, dir, account string) {
	t.Helper()
	chain, key, roots, err := m.Issuer.Issue(t.Context(), "b", account)
	must.Succeed(t, err)
	own := t.TempDir()
	files := secrets.Files{Chain: filepath.Join(own, "chain"), Key: filepath.Join(own, "key"), Roots: filepath.Join(own, "roots")}
	suite.Write(t, files.Chain, string(chain))
	suite.Write(t, files.Key, string(key))
	suite.Write(t, files.Roots, string(roots))
	manager, err := secrets.New(secrets.Options{Files: files})
	must.Succeed(t, err)
	folder, err := os.MkdirTemp("", "s") // the path of a socket is short
	must.Succeed(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(folder) })
	must.Succeed(t, os.Symlink(folder, filepath.Join(dir, "var/run/secrets/workload-spiffe-uds")))
	server, err := sds.New(sds.Options{Path: filepath.Join(folder, foreignSocket), Manager: manager})
	must.Succeed(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	for _, run := range []func(context.Context) error{manager.Run, server.Run} {
		running.Go(func() {
			if err := run(ctx); err != nil {
				t.Error(err)
			}
		})
	}
	t.Cleanup(func() { cancel(); running.Wait() })
}
