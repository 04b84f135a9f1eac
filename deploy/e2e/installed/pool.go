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

// serviceCIDR contains the addresses of the recorded world of pilot/translate.
const serviceCIDR = "10.64.0.0/12,fd00:10:96::/112"

// prepared is a cluster that contains only the charts' custom resources while no test uses it.
type prepared struct {
	*cluster.Cluster
	empty *cluster.Snapshot
}

// clusters are shared by the tests of this process. Emptying a cluster costs far less than starting one.
var clusters = new(pool)

// pool holds the unused clusters.
type pool struct {
	mu   sync.Mutex
	kept bool // whether clusters are kept for other tests until Main stops them
	free []prepared
}

// Main runs the tests of a package, which share clusters. Each test gets a cluster in its initial state. Main does not
// return.
func Main(m *testing.M, program *string) { clusters.main(m, program) }

func (p *pool) main(m *testing.M, program *string) {
	p.kept = true
	kubelet.Main(m, program, func() {
		for _, c := range p.free {
			c.Stop()
		}
	})
}

// take returns a cluster for a test, until it ends.
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
