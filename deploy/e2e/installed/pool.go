package installed

import (
	"context"
	"errors"
	"path/filepath"
	"sync"
	"testing"

	"github.com/istiod-lite/istiod-lite/deploy/charts"
	"github.com/istiod-lite/istiod-lite/deploy/e2e/cluster"
	"github.com/istiod-lite/istiod-lite/deploy/e2e/cluster/kubelet"
)

// serviceCIDR has the addresses of the recorded world of pilot/translate.
const serviceCIDR = "10.64.0.0/12,fd00:10:96::/112"

// prepared is a cluster that has the custom resources of the charts and nothing else, whenever no test uses it.
type prepared struct {
	*cluster.Cluster
	empty *cluster.Snapshot
}

// clusters are shared by the tests of this process. To start a cluster costs far more than to empty one.
var clusters = new(pool)

// pool holds clusters that no test uses now.
type pool struct {
	mu   sync.Mutex
	kept bool // whether clusters are kept for other tests, which Main stops in the end
	free []prepared
}

// Main runs the tests of a package, which share clusters: each has a cluster that is as a new one. It does not return.
func Main(m *testing.M, program *string) { clusters.main(m, program) }

func (p *pool) main(m *testing.M, program *string) {
	p.kept = true
	kubelet.Main(m, program, func() {
		for _, c := range p.free {
			c.Stop()
		}
	})
}

// take returns a cluster that is this test's until it ends.
func (p *pool) take(ctx context.Context, t *testing.T) (*cluster.Cluster, error) {
	p.mu.Lock()
	var c prepared
	if n := len(p.free); n > 0 {
		c, p.free = p.free[n-1], p.free[:n-1]
	}
	p.mu.Unlock()
	if c.Cluster == nil {
		var err error
		if c, err = prepare(ctx, cluster.Options{ServiceCIDR: serviceCIDR}); err != nil {
			return nil, err
		}
	}
	t.Cleanup(func() {
		if !p.kept || t.Failed() {
			c.Stop()
			return
		}
		if err := c.Restore(context.WithoutCancel(ctx), c.empty); err != nil {
			t.Error(err)
			c.Stop()
			return
		}
		p.mu.Lock()
		defer p.mu.Unlock()
		p.free = append(p.free, c)
	})
	return c.Cluster, nil
}

// prepare starts a cluster with the custom resources.
func prepare(ctx context.Context, o cluster.Options) (prepared, error) {
	base, err := charts.Chart("base")
	if err != nil {
		return prepared{}, err
	}
	c, err := cluster.Start(ctx, o)
	if err != nil {
		return prepared{}, err
	}
	p := prepared{Cluster: c}
	err = c.InstallCRDs(ctx, filepath.Join(base, "files", "crds"))
	if err == nil {
		p.empty, err = c.Snapshot(ctx)
	}
	if err != nil {
		c.Stop()
		return prepared{}, errors.Join(errors.New("failed to prepare a cluster"), err)
	}
	return p, nil
}
